package machine

import (
	"slices"
	"testing"
)

func TestSplitWords(t *testing.T) {
	for in, want := range map[string][]string{
		"":                            nil,
		" \t\n":                       nil,
		"--dev eth0  --link\traw":     {"--dev", "eth0", "--link", "raw"},
		`--capture "my file.pcap"`:    {"--capture", "my file.pcap"},
		`a'b c'd`:                     {"ab cd"},
		`'' ""`:                       {"", ""},
		`a\ b \'c`:                    {"a b", "'c"},
		`"a\"b\\c\d\$e"`:              {`a"b\c\d$e`},
		`'a\b"c'`:                     {`a\b"c`},
		"--fault='drop,psn=1' --spin": {"--fault=drop,psn=1", "--spin"},
	} {
		if got, err := splitWords(in); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %q, %v, want %q", in, got, err, want)
		}
	}
	for in, want := range map[string]string{
		`a 'b`: "a quote ' is not closed", `a "b'`: `a quote " is not closed`, `a\`: "there is nothing after the last backslash",
	} {
		if got, err := splitWords(in); err == nil || err.Error() != want {
			t.Errorf("%q: %q, %v, want %s", in, got, err, want)
		}
	}
}

func TestJoinWords(t *testing.T) {
	words := []string{"--dev=eth0", "", "it's", `a "b" \ $c`, "x y\tz\n", "--loss=rx=1%"}
	if got, err := splitWords(joinWords(words)); err != nil || !slices.Equal(got, words) {
		t.Errorf("%q, %v, want %q", got, err, words)
	}
}

func FuzzSplitWords(f *testing.F) {
	f.Add(`--dev eth0 'a b' "c\"d" \`)
	f.Fuzz(func(t *testing.T, text string) {
		words, err := splitWords(text)
		if err != nil {
			return
		}
		if again, err := splitWords(joinWords(words)); err != nil || !slices.Equal(again, words) {
			t.Errorf("%q: %q, %q, %v", text, words, again, err)
		}
	})
}
