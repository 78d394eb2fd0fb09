package verify

import "slices"

// Departure is a known way in which an implementation breaks a rule.
type Departure struct {
	ID       string `json:"id"`
	Rule     RuleID `json:"-"`
	By       string `json:"by"` // "Linux rxe", "this stack"
	Sentence string `json:"sentence"`
	Doc      string `json:"doc"` // where it is described, in the repository of this stack
}

// Values of [Departure.By].
const (
	byRxe   = "Linux rxe"
	byStack = "this stack"
)

const (
	docRxe      = "docs/rxe-differences.md"
	docRecovery = "docs/recovery.md"
)

// The departures. The Verifier recognises each by the packets. It takes an end that sends M = 0 in every packet for rxe, and any other
// end for this stack.
var (
	rxeMigReq  = Departure{"rxe-migreq", headerMigReq, byRxe, "rxe always sends M = 0 and does not look at it.", docRxe}
	rxeFlush   = Departure{"rxe-flush-icrc", headerICRC, byRxe, "rxe of Linux 6.12 feeds the headers of a FLUSH twice into its ICRC.", docRxe}
	rxeGSIAck  = Departure{"rxe-gsi-ackreq", headerAckReq, byRxe, "rxe sets the acknowledge request bit in management datagrams.", docRxe}
	rxeMiddle  = Departure{"rxe-read-middle", readOpcode, byRxe, "rxe answers a READ that is repeated in part with MIDDLE and LAST, not as a message of its own.", docRxe}
	rxeHeld    = Departure{"rxe-rnr-held", rnrHeld, byRxe, "rxe goes on to send what is queued while it waits after an RNR NAK.", docRxe}
	rxeEarly   = Departure{"rxe-rnr-early", rnrEarly, byRxe, "rxe repeats before the time is over if it gets a NAK or an acknowledgement meanwhile.", docRxe}
	rxeSilent  = Departure{"rxe-rnr-silence", rnrSilence, byRxe, "rxe sends a NAK for a sequence error too, for packets behind one that got an RNR NAK.", docRxe}
	rxeForever = Departure{"rxe-retry-forever", repeatCount, byRxe, "rxe takes a retry count of 7 for infinite.", docRxe}
	rxeReadACK = Departure{"rxe-read-ack", responseKind, byRxe, "rxe answers a repeated SEND before a READ with an ACK that has the PSN of the READ.", docRxe}
	rxeJiffies = Departure{"rxe-jiffies", repeatEarly, byRxe, "rxe counts its ACK timeout in jiffies, rounded down: it may be up to two of them early, 8 ms with 250 Hz.", docRxe}
	rxeDepth   = Departure{"rxe-read-depth", readDepth, byRxe, "rxe rounds the number of READs that it may have outstanding up to a power of two.", docRxe}

	stackSingle   = Departure{"recovery-single", goBackSkip, byStack, "A requester with RecoverAll repeats a missing request alone, to a peer that holds the later ones.", docRecovery}
	stackPart     = Departure{"recovery-reads", readAgain, byStack, "A requester with RecoverReads asks for the missing responses of a READ alone.", docRecovery}
	stackNAK      = Departure{"nak-repeated", nakRepeated, byStack, "A responder repeats its NAK while packets behind the gap arrive, a few times at most for each time that the requester sends them.", docRxe}
	stackProbe    = Departure{"probe", repeatEarly, byStack, "A requester that hears nothing for some round trips sends its oldest packet once more as a probe.", docRxe}
	stackFlush    = Departure{"flush-probe", repeatDiffers, byStack, "Towards rxe a repeated FLUSH is preceded by a WRITE of nothing with the PSN before it.", docRxe}
	stackDREQ     = Departure{"dreq-early", cmRetries, byStack, "A DREQ is repeated after 100, 200, … ms at first, on top of the retries.", docRxe}
	stackDREQSoon = Departure{"dreq-soon", cmEarly, byStack, "A DREQ is repeated after 100, 200, … ms at first, and after 10, 20, … ms when a device is closed.", docRxe}
	stackREP      = Departure{"rep-early", cmEarly, byStack, "A REP is repeated after 0.5, 1, 2 and 4 s, whatever time the REQ gives.", docRxe}
)

// when returns d if the packets show the departure, and nil otherwise.
func (d *Departure) when(shown bool) *Departure {
	if shown {
		return d
	}
	return nil
}

// Departures returns all known departures and extensions.
func Departures() []Departure { return slices.Clone(departures) }

var departures = []Departure{rxeMigReq, rxeFlush, rxeGSIAck, rxeMiddle, rxeHeld, rxeEarly, rxeSilent, rxeForever, rxeReadACK, rxeJiffies, rxeDepth,
	stackSingle, stackPart, stackNAK, stackProbe, stackFlush, stackDREQ, stackDREQSoon, stackREP}
