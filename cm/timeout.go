package cm

import "time"

// MaxTimeoutCode is the largest of the 5-bit timeout codes.
const MaxTimeoutCode = 31

// ResponseTimeout converts a 5-bit CM timeout code to a duration the way Linux
// does: 1 ms·2^(code−8), which is 2.4 % less than the 4.096 µs·2^code of IBTA
// 12.7.14. Both ends of a connection need to agree only roughly.
func ResponseTimeout(code uint8) time.Duration {
	code = min(code, MaxTimeoutCode)
	if code <= 8 {
		return time.Millisecond
	}
	return time.Millisecond << (code - 8)
}

// AckTimeout computes the local ACK timeout code of a connection from the ACK
// delay of the other end and the packet life time of the path, all of them codes
// of 4.096 µs·2^n.
//
// The timeout should cover the delay and two life times. Adding one to a code
// doubles the time. So the result is the larger of the two terms, plus one only
// if the other is close. Linux: cm_ack_timeout.
func AckTimeout(ackDelay, packetLifeTime uint8) uint8 {
	t := int(packetLifeTime) + 1
	d := int(ackDelay)
	if t >= d {
		if d >= t-1 {
			t++
		}
	} else {
		near := t >= d-1
		t = d
		if near {
			t++
		}
	}
	return uint8(min(t, MaxTimeoutCode))
}
