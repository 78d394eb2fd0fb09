// Command rocectl runs, shows and checks software RDMA NICs. It has the tools of
// rdma-core and librdmacm, wire-compatible with them, tools for captures, and
// a demonstration that needs no privilege.
//
// Exit codes: 0 success, 1 the operation failed, 2 wrong usage. Some commands have more.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/goroce/roce/internal/tools/launch"
)

func main() {
	launch.Inside() // a process of "rocectl run" in a namespace
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}
