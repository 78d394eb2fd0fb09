package hostile

// difference is how rxe departs from Case.Want.
type difference struct {
	rxe   map[string]string // outcome by kernel series, or for every other one
	why   string
	warns bool // the kernel prints a warning about itself
}

// every is the key for all kernels that have none of their own.
const every = "*"

// all is the outcome on every kernel.
func all(s string) map[string]string { return map[string]string{every: s} }

// differences are those of rxe, by the name of the case. docs/rxe-differences.md
// has those that a peer meets without hostile packets.
var differences = map[string]difference{
	"a PSN from before the first":     {rxe: all("ACK +2 msn 0"), why: "rxe has received nothing yet and acknowledges PSN 0xffffff"},
	"a PSN from long before":          {rxe: all("ACK +2 msn 0"), why: "the same"},
	"no receive, and the next packet": {rxe: all("RNR +0 msn 0; NAK sequence +0 msn 0"), why: "packets behind one that got an RNR NAK provoke a sequence NAK as well"},

	"SEND FIRST shorter than the MTU": {rxe: map[string]string{"6.1": "nothing", every: "NAK invalid +0 msn 0; recv REM_INV_REQ_ERR; ERR"},
		why: "6.1 does not check the length of SENDs; later ones take the receive before it looks at the length"},
	"SEND MIDDLE shorter than the MTU": {rxe: map[string]string{"6.1": "nothing"}, why: "6.1 does not check the length of SENDs"},
	"SEND LAST without payload":        {rxe: map[string]string{"6.1": "recv SUCCESS 1024 B"}, why: "6.1 does not check the length of SENDs"},
	"SEND ONLY longer than the MTU": {rxe: map[string]string{"6.1": "recv SUCCESS 1028 B", every: "NAK invalid +0 msn 0; recv REM_INV_REQ_ERR; ERR"},
		why: "6.1 does not check the length of SENDs; later ones take the receive before it looks at the length"},
	"SEND longer than the receive":           {rxe: all("NAK operation +2 msn 0; recv LOC_QP_OP_ERR; ERR"), why: "SEND longer than the receive buffer"},
	"WRITE FIRST of a message of one packet": {rxe: all("ACK +0 msn 0; memory 0…1023 changed"), why: "rxe compares with the length of the message in its last packet only"},
	"WRITE MIDDLE where LAST is due":         {rxe: all("ACK +1 msn 0; memory 0…2047 changed"), why: "rxe compares with the length of the message in its last packet only"},
	"WRITE ONLY of nothing, with payload": {rxe: map[string]string{"6.1": Panic, every: "NAK access +0 msn 0; ERR"}, warns: true,
		why: "rxe looks up no region for a WRITE of nothing, and then copies the payload into it: one packet of a peer, or of anyone who knows addresses, queue pair and PSN, kills Linux 6.1"},
	"WRITE of more than 2^31 bytes": {rxe: map[string]string{"6.1": "NAK access +0 msn 0; ERR"}, why: "6.1 looks at the key first"},
	"READ of more than 2^31 bytes":  {rxe: map[string]string{"6.1": "NAK access +0 msn 0; ERR"}, why: "6.1 looks at the key first"},

	"ATOMIC WRITE of nothing":                 {rxe: map[string]string{"6.1": "nothing"}, why: "6.1 has no ATOMIC WRITE"},
	"ATOMIC WRITE of 8 bytes without payload": {rxe: map[string]string{"6.1": "nothing"}, why: "6.1 has no ATOMIC WRITE"},
	"ATOMIC WRITE of 16 bytes":                {rxe: map[string]string{"6.1": "nothing"}, why: "6.1 has no ATOMIC WRITE"},
	"ATOMIC WRITE at an odd address":          {rxe: map[string]string{"6.1": "nothing"}, why: "6.1 has no ATOMIC WRITE"},
	"FLUSH without the right":                 {rxe: all("nothing"), why: "6.1 has no FLUSH; later ones want another ICRC for it"},

	"SEND that invalidates a key that is none":      {rxe: all("ACK +0 msn 0; recv REM_INV_REQ_ERR, WR_FLUSH_ERR; ERR"), why: "rxe acknowledges the message without counting it"},
	"SEND that invalidates a user's region":         {rxe: all("ACK +0 msn 0; recv REM_INV_REQ_ERR, WR_FLUSH_ERR; ERR"), why: "the same"},
	"SEND again, not asking for an acknowledgement": {rxe: all("ACK +0 msn 1; ACK +0 msn 1; recv SUCCESS 100 B"), why: "rxe acknowledges every repeated packet"},
	"the rest of a READ again":                      {rxe: all(threeResponses + "; READ MIDDLE +1 1024 B; READ LAST +2 952 B msn 1"), why: "repeated part of a READ"},
	"a whole READ again, after a part of it":        {rxe: all(threeResponses + "; READ LAST +2 952 B msn 1"), why: "whole READ repeated after a part of it"},
	"atomic at the PSN of a READ": {rxe: all("READ ONLY +0 100 B msn 1; ATOMIC_ACK +0 = the address of the memory msn 1"),
		why: "rxe takes the saved READ for an atomic and sends its address as the result"},

	"ACK of what is not sent yet":        {rxe: all("send SUCCESS"), why: "rxe believes an ACK from ahead"},
	"ACK from far ahead":                 {rxe: all("send SUCCESS"), why: "the same"},
	"NAK of what is not sent yet":        {rxe: all("send SUCCESS"), why: "rxe takes it for an ACK of all before it"},
	"NAK with a reserved code":           {rxe: all("send REM_OP_ERR; ERR"), why: "another status"},
	"reserved syndrome":                  {rxe: all("send SUCCESS; ERR"), warns: true, why: "rxe completes what failed"},
	"READ response to a SEND":            {rxe: all("send FATAL_ERR; ERR"), warns: true, why: "another status"},
	"atomic acknowledgement of a SEND":   {rxe: all("send SUCCESS; ERR"), warns: true, why: "rxe completes what failed"},
	"READ response, too long":            {rxe: all("send LOC_PROT_ERR; ERR"), warns: true, why: "another status"},
	"READ response, too short":           {rxe: all("memory 0…47 changed"), why: "rxe waits for the rest and asks again"},
	"READ response FIRST for one packet": {rxe: all("send LOC_PROT_ERR; ERR"), warns: true, why: "another status"},
	"READ response LAST without FIRST": {rxe: all("send SUCCESS; ERR"), warns: true,
		why: "rxe completes a READ that has no data and goes to ERR; roce takes the form in which rxe repeats the end of a READ"},
	"READ response with a NAK in it":   {rxe: all("send SUCCESS; ERR"), warns: true, why: "rxe completes what failed"},
	"ACK of a READ":                    {rxe: all("send SUCCESS"), why: "rxe completes a READ that has no data"},
	"ACK of an atomic":                 {rxe: all("send SUCCESS"), why: "rxe completes an atomic that has no result"},
	"atomic acknowledgement of a READ": {rxe: all("send SUCCESS; ERR"), warns: true, why: "rxe completes what failed"},
	"READ response to an atomic":       {rxe: all("send FATAL_ERR; ERR"), warns: true, why: "another status"},
	"NAK of a READ":                    {rxe: all("nothing"), why: "rxe looks at a NAK only if it has the PSN of the request or of the next response"},

	"UD: longer than the MTU":                  {rxe: all("recv SUCCESS 1068 B"), why: "rxe takes what it has room for"},
	"UC: another message inside one":           {rxe: all("nothing"), why: "rxe drops the new message, too"},
	"UC: a gap in a message, and the next one": {rxe: all("nothing"), why: "rxe drops the next message, too"},
}
