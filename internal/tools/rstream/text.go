package rstream

import "fmt"

// sizeText prints bytes as librdmacm's examples do: "64", "4k", "1.5m".
func sizeText(n int64) string {
	base, unit := int64(1), ""
	for _, u := range []struct {
		base int64
		unit string
	}{{1 << 30, "g"}, {1 << 20, "m"}, {1 << 10, "k"}} {
		if n >= u.base {
			base, unit = u.base, u.unit
			break
		}
	}
	if n/base < 10 {
		if tenth := n % base * 10 / base; tenth > 0 {
			return fmt.Sprintf("%d.%d%s", n/base, tenth, unit)
		}
	}
	return fmt.Sprintf("%d%s", n/base, unit)
}

// countText prints a number: "100", "10k", "1m".
func countText(n int) string {
	for _, u := range []struct {
		base int
		unit string
	}{{1e9, "b"}, {1e6, "m"}, {1e3, "k"}} {
		if n >= u.base {
			return fmt.Sprintf("%d%s", n/u.base, u.unit)
		}
	}
	return fmt.Sprint(n)
}

// pattern is the data of -T v: bytes that count up, in either direction.
type pattern struct {
	sent, received byte
	total          int64
}

func (p *pattern) fill(b []byte) {
	if p == nil {
		return
	}
	for i := range b {
		b[i] = p.sent
		p.sent++
	}
}

func (p *pattern) check(b []byte) error {
	if p == nil {
		return nil
	}
	for i := range b {
		if b[i] != p.received {
			return fmt.Errorf("data verification failed byte %d: %#x, want %#x", p.total, b[i], p.received)
		}
		p.received++
		p.total++
	}
	return nil
}
