package wire

import "fmt"

// Reason is the reason why bytes cannot be decoded.
type Reason uint8

// The reasons.
const (
	TooShort     Reason = iota + 1 // Got bytes, Want at least
	BadMagic                       // Got is the number
	BadVersion                     // Got is the version
	BadType                        // Got is the type
	BadLength                      // the length field is Got, Want at most
	BadChecksum                    // Got is in the message, Want is computed with signed bytes
	BadNID                         // the source is "any"
	BadFragments                   // Got fragments, Want at most
)

var reasonText = [...]string{
	TooShort:     "has %d bytes, needs %d",
	BadMagic:     "has magic %#x, want %#x",
	BadVersion:   "has version %#x, the newest is %#x",
	BadType:      "has type %#x, the last is %#x",
	BadLength:    "says it has %d bytes, has %d",
	BadChecksum:  "has checksum %#x, its bytes have %#x",
	BadNID:       "names the source %#x, which stands for any node, as %#x does",
	BadFragments: "has %d fragments, want 1 to %d",
}

// Error says which object could not be decoded, and why.
type Error struct {
	Object    string // "PUT_ACK", "LNet header"
	Reason    Reason
	Got, Want uint64
}

func (e *Error) Error() string {
	return "lnet: " + e.Object + " " + fmt.Sprintf(reasonText[e.Reason], e.Got, e.Want)
}

func fail(object string, r Reason, got, want uint64) error {
	return &Error{Object: object, Reason: r, Got: got, Want: want}
}
