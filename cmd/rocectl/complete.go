package main

import (
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/goroce/roce"
	"github.com/goroce/roce/internal/machine"
	"github.com/goroce/roce/internal/tools/conform"
	"github.com/goroce/roce/internal/tools/usage"
)

const completionHelp = `Print a script with which a shell completes the commands, flags and values of rocectl.

bash (needs the package bash-completion); the first line is for this shell, the second
for all later ones:
  source <(rocectl completion bash)
  rocectl completion bash > /etc/bash_completion.d/rocectl

zsh, into any folder of $fpath:
  rocectl completion zsh > "${fpath[1]}/_rocectl"

fish:
  rocectl completion fish > ~/.config/fish/completions/rocectl.fish

PowerShell:
  rocectl completion powershell | Out-String | Invoke-Expression`

// shells are the shells that cobra writes completion scripts for.
var shells = []string{"bash", "zsh", "fish", "powershell"}

func completionCommand() *cobra.Command {
	return &cobra.Command{
		Use:       "completion {bash|zsh|fish|powershell}",
		Short:     "Print a script that completes command lines in a shell",
		Long:      completionHelp,
		Example:   `  source <(rocectl completion bash)`,
		Args:      arguments(1, 1),
		ValidArgs: shells,
		RunE: func(c *cobra.Command, args []string) error {
			root, out := c.Root(), c.OutOrStdout()
			switch args[0] {
			case "bash":
				return root.GenBashCompletionV2(out, true)
			case "zsh":
				return root.GenZshCompletion(out)
			case "fish":
				return root.GenFishCompletion(out, true)
			case "powershell":
				return root.GenPowerShellCompletionWithDesc(out)
			}
			return usage.OneOf("completion", args[0], shells...)
		},
	}
}

// flagValues returns the values that a shell offers for a flag, by the flag's name.
var flagValues = map[string]func() []string{
	"dev":         machine.InterfaceNames,
	"ib-dev":      machine.InterfaceNames,
	"link":        func() []string { return append(slices.Clone(roce.InterfaceDrivers()), machine.LinkMem) },
	"spin":        func() []string { return []string{machine.SpinNone} },
	"sysfs":       sysfsModes,
	"zero-copy":   func() []string { return []string{"auto", "on", "off"} },
	"connection":  func() []string { return []string{"RC", "UC", "UD"} },
	"mtu":         func() []string { return []string{"256", "512", "1024", "2048", "4096"} },
	"atomic_type": func() []string { return []string{"FETCH_AND_ADD", "CMP_AND_SWAP"} },
}

// fileFlags names the flags whose value is a file.
var fileFlags = []string{"capture", "captures", "html", "out", "dir", "lib", "log", "rules", "script"}

// addCompletions adds completions to c and its subcommands: the values of flags, and files for flags and arguments that are files.
func addCompletions(c *cobra.Command) {
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if slices.Contains(fileFlags, f.Name) {
			return
		}
		complete := cobra.NoFileCompletions
		values := flagValues[f.Name]
		if f.Name == "peer" && c.Name() == "conform" {
			values = func() []string { return conform.Peers }
		}
		if f.Name == "link" && (c.Flags().Lookup("dev") == nil || c.Name() == "run") {
			values = roce.InterfaceDrivers // the command opens a NIC on an interface, so "mem" is not possible
		}
		if values != nil {
			complete = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
				return values(), cobra.ShellCompDirectiveNoFileComp
			}
		}
		if err := c.RegisterFlagCompletionFunc(f.Name, complete); err != nil {
			panic(err) // c does not have the flag, or has a completion for it already
		}
	})
	switch {
	case c.ValidArgs != nil || c.HasParent() && c.Parent().Name() == "pcap" || c.Name() == "run":
	case c.Name() == "dev" || c.Name() == "watch":
		c.ValidArgsFunction = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return machine.InterfaceNames(), cobra.ShellCompDirectiveNoFileComp
		}
	default:
		c.ValidArgsFunction = cobra.NoFileCompletions
	}
	for _, sub := range c.Commands() {
		addCompletions(sub)
	}
}
