package fipingpong

import "fmt"

// sizeText prints bytes as fi_pingpong does: "64", "4k", "1m".
func sizeText(n int) string { return scaled(n, 1<<10, 1<<20, 1<<30) }

// countText prints a number as fi_pingpong does: "10", "100k".
func countText(n int) string { return scaled(n, 1e3, 1e6, 1e9) }

func scaled(n int, k, m, g int) string {
	for _, u := range []struct {
		base int
		unit string
	}{{g, "g"}, {m, "m"}, {k, "k"}} {
		switch {
		case n < u.base:
		case n%u.base == 0:
			return fmt.Sprintf("%d%s", n/u.base, u.unit)
		default:
			return fmt.Sprintf("%.1f%s", float64(n)/float64(u.base), u.unit)
		}
	}
	return fmt.Sprint(n)
}
