package report

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestRXE(t *testing.T) {
	dir := t.TempDir()
	if r, err := loadRXE(dir); r != nil || err != nil {
		t.Errorf("without file: %v, %v", r, err)
	}
	file := filepath.Join(dir, "rxe-1.json")
	write := func(s string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(s), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("{")
	if _, err := loadRXE(dir); err == nil {
		t.Error("half a file was taken")
	}
	// The targets are for one processor; the results for two have a separate table.
	other := `{"date":"2026-01-03","cpus":2,"rows":[{"test":"WRITE 64 KiB, PMTU 4096","unit":"Gb/s","by":{"rxe":{"median":2},"roce raw":{"median":9,"ratio":4.5}}}]}`
	if err := os.WriteFile(filepath.Join(dir, "rxe-2.json"), []byte(other), 0o644); err != nil {
		t.Fatal(err)
	}
	write(`{"date":"2026-01-02T03:04:05Z","kernel":"6.12","guest":"KVM","cpus":1,"rounds":3,"rows":[
		{"test":"WRITE 64 KiB, PMTU 4096","unit":"Gb/s","better":"higher","by":{
			"rxe":{"rounds":[],"median":2},"roce raw":{"median":5,"ratio":2.5},"roce udp":{"median":6,"ratio":3}}},
		{"test":"SEND 64 B latency","unit":"µs","better":"lower","by":{"rxe":{"median":20},"roce raw":{"failed":["no"]}}}]}`)
	if err := Write(dir, sample()); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(dir, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| against rxe in one VM, one processor for both ends: WRITE 64 KiB, PMTU 4096 | 3.00 × (6 : 2 Gb/s, roce udp) | ≥ 2.00 × | ≥ 4.00 × | reached |",
		"| against rxe in one VM, one processor for both ends: SEND 64 B | – |",
		"| WRITE 64 KiB, PMTU 4096, Gb/s | 2 | 5 | 2.50 | 6 | 3.00 |",
		"| SEND 64 B latency, µs | 20 | – | – | – | – |",
		"-cpus 1'` on 2026-01-02: inside one virtual machine (KVM)",
		"-cpus 2'` on 2026-01-03: inside",
		"| WRITE 64 KiB, PMTU 4096, Gb/s | 2 | 9 | 4.50 |",
	} {
		if !strings.Contains(string(b), want) {
			t.Errorf("there is no %q", want)
		}
	}
	if _, err := os.Stat(file); err != nil {
		t.Error(err)
	}
}
