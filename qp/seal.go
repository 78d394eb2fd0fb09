//go:build !noicrc

package qp

import "github.com/goroce/roce/bth"

// seal writes the pad bytes and the ICRC behind a packet of n bytes. It computes the ICRC of the whole packet in one
// go, while the packet is in the first-level cache.
func seal(body []byte, n, pad int, crc bth.CRC) {
	clear(body[n : n+pad])
	n += pad
	bth.PutICRC(body[n:], crc.UpdateBody(body[:n]))
}
