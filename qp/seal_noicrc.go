//go:build noicrc

package qp

import "github.com/goroce/roce/bth"

// seal writes the pad bytes and no ICRC. No peer accepts such packets. BenchmarkEngineAlone uses them to measure the
// engine without the ICRC.
func seal(body []byte, n, pad int, _ bth.CRC) { clear(body[n : n+pad]) }
