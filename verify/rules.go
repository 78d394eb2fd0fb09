package verify

// The names of the rules.
const (
	headerShort       RuleID = "bth-short"
	headerOpcode      RuleID = "bth-opcode"
	headerVersion     RuleID = "bth-version"
	headerPad         RuleID = "bth-pad"
	headerPadBytes    RuleID = "bth-pad-bytes"
	headerReserved    RuleID = "bth-reserved"
	headerExtended    RuleID = "ext-reserved"
	headerSolicited   RuleID = "bth-solicited"
	headerAckReq      RuleID = "bth-ackreq"
	headerPKey        RuleID = "bth-pkey"
	headerDestQP      RuleID = "bth-dest"
	headerMigReq      RuleID = "bth-migreq"
	headerICRC        RuleID = "icrc"
	headerIP          RuleID = "ip-header"
	headerFragment    RuleID = "ip-fragment"
	headerIPChecksum  RuleID = "ip-checksum"
	headerDontFrag    RuleID = "ip-df"
	headerUDPLength   RuleID = "udp-length"
	headerUDPChecksum RuleID = "udp-checksum"
	headerGSIKey      RuleID = "gsi-qkey"

	lengthMTU         RuleID = "length-mtu"
	lengthLast        RuleID = "length-last"
	lengthWrite       RuleID = "length-write"
	lengthMax         RuleID = "length-max"
	lengthNone        RuleID = "length-none"
	lengthAtomicWrite RuleID = "length-atomic-write"
	orderMessage      RuleID = "order-message"

	psnGap            RuleID = "psn-gap"
	psnStart          RuleID = "psn-start"
	psnWindow         RuleID = "psn-window"
	psnUC             RuleID = "psn-uc"
	goBackPlace       RuleID = "goback-place"
	goBackSkip        RuleID = "goback-skip"
	goBackUnacked     RuleID = "goback-oldest"
	repeatDiffers     RuleID = "repeat-differs"
	repeatNeedless    RuleID = "repeat-needless"
	repeatEarly       RuleID = "repeat-early"
	repeatCount       RuleID = "repeat-count"
	requestAfterFatal RuleID = "request-after-fatal"
	creditsExceeded   RuleID = "credits-exceeded"

	ackUnsent          RuleID = "ack-unsent"
	ackUnreceived      RuleID = "ack-unreceived"
	ackBackwards       RuleID = "ack-backwards"
	aethSyndrome       RuleID = "aeth-syndrome"
	responseKind       RuleID = "response-kind"
	responseOrder      RuleID = "response-order"
	responseAfterFatal RuleID = "response-after-fatal"
	msnCount           RuleID = "msn-count"
	msnBackwards       RuleID = "msn-backwards"
	nakAcked           RuleID = "nak-acked"
	nakNoGap           RuleID = "nak-no-gap"
	nakPlace           RuleID = "nak-place"
	nakRepeated        RuleID = "nak-repeated"

	readRange     RuleID = "read-range"
	readGap       RuleID = "read-gap"
	readOpcode    RuleID = "read-opcode"
	readLength    RuleID = "read-length"
	readRedundant RuleID = "read-redundant"
	readAgain     RuleID = "read-again"
	readDepth     RuleID = "read-depth"

	atomicReplay RuleID = "atomic-replay"
	atomicTwice  RuleID = "atomic-twice"
	atomicValue  RuleID = "atomic-value"
	atomicAlign  RuleID = "atomic-align"

	rnrEarly   RuleID = "rnr-early"
	rnrHeld    RuleID = "rnr-held"
	rnrSilence RuleID = "rnr-silence"
	rnrKind    RuleID = "rnr-kind"

	cmMAD       RuleID = "cm-mad"
	cmReserved  RuleID = "cm-reserved"
	cmValue     RuleID = "cm-value"
	cmRepeat    RuleID = "cm-repeat"
	cmRetries   RuleID = "cm-retries"
	cmEarly     RuleID = "cm-early"
	cmMRA       RuleID = "cm-mra"
	cmLate      RuleID = "cm-late"
	cmUnasked   RuleID = "cm-unasked"
	cmSide      RuleID = "cm-side"
	cmRejected  RuleID = "cm-rejected"
	cmReject    RuleID = "cm-rej"
	cmSIDR      RuleID = "cm-sidr"
	cmIDs       RuleID = "cm-ids"
	cmTID       RuleID = "cm-tid"
	cmDepth     RuleID = "cm-depth"
	cmMTU       RuleID = "cm-mtu"
	cmAddresses RuleID = "cm-addresses"
	cmPath      RuleID = "cm-path"
	cmReady     RuleID = "cm-ready"
	cmOver      RuleID = "cm-over"

	counterNAK            RuleID = "counter-nak"
	counterSequence       RuleID = "counter-sequence"
	counterTimeout        RuleID = "counter-timeout"
	counterDuplicate      RuleID = "counter-duplicate"
	counterRNR            RuleID = "counter-rnr"
	counterICRC           RuleID = "counter-icrc"
	counterCNP            RuleID = "counter-cnp"
	counterRetransmission RuleID = "counter-retransmission"

	cnpFormat   RuleID = "cnp-format"
	cnpUnmarked RuleID = "cnp-unmarked"
	cnpPacing   RuleID = "cnp-pacing"
)

// These are shorter names for values of [Rule.Needs].
const (
	anywhere    = Nothing
	whole       = Complete
	atHost      = Where
	wholeAtHost = Where | Complete
)

// noSection is the section of a rule that is not in the standard.
const noSection = "–"

// rules is the table of all rules. The tables in docs/verify-rules.md are generated from it.
var rules = []Rule{
	{headerShort, "9.6", Headers, Error, anywhere, "A packet is as long as the headers of its opcode and the ICRC."},
	{headerOpcode, "9.2.1", Headers, Error, anywhere, "The opcode is not a reserved one."},
	{headerVersion, "9.2.4", Headers, Error, anywhere, "The transport header version is 0."},
	{headerPad, "9.2.3", Headers, Error, anywhere, "Payload and pad bytes are a multiple of four, and there are at most three pad bytes."},
	{headerPadBytes, "9.2.3", Headers, Note, anywhere, "Pad bytes are zero."},
	{headerReserved, "9.2", Headers, Warning, anywhere, "Reserved bits of the BTH are sent as zero, and FECN and BECN are zero except in a CNP."},
	{headerExtended, "9.3", Headers, Warning, anywhere, "Reserved bits of extended headers are sent as zero."},
	{headerSolicited, "9.2.2", Headers, Warning, anywhere, "The solicited event bit is set only in the last packet of a SEND and of a WRITE with immediate data."},
	{headerAckReq, "9.2.7", Headers, Warning, anywhere, "The acknowledge request bit is set only in requests of reliable services."},
	{headerPKey, "9.2.5", Headers, Error, anywhere, "The P_Key is valid, and a connection uses one partition."},
	{headerDestQP, "9.2.6", Headers, Error, anywhere, "The destination queue pair fits the service and the address: 0xFFFFFF and a group, QP 1 and a datagram."},
	{headerMigReq, "17.2.8", Headers, Note, anywhere, "An end that is not about to migrate sends M = 1."},
	{headerICRC, "A17.3.3", Headers, Error, anywhere, "The ICRC is right."},
	{headerIP, "A17.3.1", Headers, Error, anywhere, "The IPv4 header has no options; an IPv6 header has no IPv4 address in it."},
	{headerFragment, "A17.3.1", Headers, Error, anywhere, "Packets are not fragmented."},
	{headerIPChecksum, "A17.3.1", Headers, Error, anywhere, "The checksum of the IPv4 header is right."},
	{headerDontFrag, "A17.3.1", Headers, Warning, anywhere, "The IPv4 header forbids fragments (DF = 1)."},
	{headerUDPLength, "A17.3.2", Headers, Error, anywhere, "The UDP length fits the IP packet."},
	{headerUDPChecksum, "A17.3.2", Headers, Error, anywhere, "The UDP checksum is right, or zero."},
	{headerGSIKey, "3.5.3", Headers, Error, anywhere, "A datagram to QP 1 has the Q_Key 0x80010000."},

	{lengthMTU, "9.7.4.1.6", Lengths, Error, anywhere, "The payload of a FIRST or MIDDLE packet is the path MTU of the connection."},
	{lengthLast, "9.7.4.1.6", Lengths, Error, anywhere, "A LAST packet has 1 byte to a path MTU of payload, an ONLY packet at most a path MTU."},
	{lengthWrite, "9.7.4.1.6", Lengths, Error, anywhere, "The packets of a WRITE carry as many bytes as its RETH says."},
	{lengthMax, "9.7.4.1.6", Lengths, Error, anywhere, "A message has at most 2^31 bytes."},
	{lengthNone, "9.2.1", Lengths, Error, anywhere, "A packet whose opcode has no payload carries none."},
	{lengthAtomicWrite, "A19.4", Lengths, Error, anywhere, "An ATOMIC WRITE has 8 bytes of payload, and its RETH says 8."},
	{orderMessage, "9.7.4.1.2", Lengths, Error, anywhere, "A message is FIRST, MIDDLE, …, LAST of one kind, or ONLY, and messages do not overlap."},

	{psnGap, "9.7.3.1", Requester, Error, wholeAtHost, "Each new request has the PSN after that of the request before."},
	{psnStart, "12.6.5", Requester, Error, whole, "The first request of a connection has the starting PSN that the peer's REQ or REP names."},
	{psnWindow, "9.7.2", Requester, Error, whole, "Less than half of the PSNs are outstanding."},
	{psnUC, "9.8.2.2", Requester, Error, wholeAtHost, "Each packet of an unreliable connection has the PSN after that of the packet before."},
	{goBackPlace, "9.7.5.2.3", Requester, Error, wholeAtHost, "After a NAK for a sequence error the requester goes back to the PSN of the NAK."},
	{goBackSkip, "9.7.5.1.2", Requester, Error, wholeAtHost, "A requester that goes back repeats all unacknowledged requests, in order."},
	{goBackUnacked, "9.9.2", Requester, Error, wholeAtHost, "A requester that goes back by itself begins at the oldest unacknowledged request."},
	{repeatDiffers, "9.7.3.1", Requester, Error, anywhere, "A repeated request is the same as the first time."},
	{repeatNeedless, "9.9.2", Requester, Note, wholeAtHost | Clock, "A request is not repeated long after its acknowledgement has arrived."},
	{repeatEarly, "9.9.2", Requester, Warning, whole | Clock, "Without a NAK, a request is not repeated before the local ACK timeout of the connection has passed."},
	{repeatCount, "9.9.2", Requester, Error, whole | Clock, "A request is repeated by timeouts at most as often as the retry count of the connection says."},
	{requestAfterFatal, "9.9.2", Requester, Error, Clock, "After a NAK other than a sequence error the requester sends no more requests."},
	{creditsExceeded, "9.7.7.2", Requester, Warning, whole, "A requester sends no more SENDs than the credits allow, and one to ask for more."},

	{ackUnsent, "9.7.5.1.2", Responder, Error, wholeAtHost, "A response has the PSN of a request that was sent."},
	{ackUnreceived, "9.7.4.1.2", Responder, Error, wholeAtHost, "A responder acknowledges only what has arrived without a gap."},
	{ackBackwards, "9.7.5.1.2", Responder, Warning, anywhere, "The PSNs of acknowledgements do not go back."},
	{aethSyndrome, "9.7.5.2.1", Responder, Error, anywhere, "The syndrome is not a reserved one, and that of a READ or atomic response is an ACK."},
	{responseKind, "9.7.5.1.1", Responder, Error, anywhere, "A response fits its request: data for a READ, ATOMIC ACKNOWLEDGE for an atomic, ACKNOWLEDGE for SEND and WRITE."},
	{responseOrder, "9.7.5.1.3", Responder, Error, wholeAtHost, "Responses leave in the order of their requests."},
	{responseAfterFatal, "9.9.3", Responder, Error, Clock, "After a NAK other than a sequence error the responder answers nothing more."},
	{msnCount, "9.7.7.1", Responder, Error, anywhere, "The MSN is the number of messages that the responder has completed."},
	{msnBackwards, "9.7.7.1", Responder, Warning, anywhere, "The MSN of acknowledgements does not go back."},
	{nakAcked, "9.7.5.2.3", Responder, Error, anywhere, "A NAK has no PSN that was acknowledged before."},
	{nakNoGap, "9.7.5.2.3", Responder, Error, whole, "A NAK for a sequence error has a cause: a later request was sent."},
	{nakPlace, "9.7.5.2.3", Responder, Error, wholeAtHost, "The PSN of a NAK for a sequence error is that of the first missing request."},
	{nakRepeated, "9.7.5.2.3", Responder, Error, whole, "A gap gets one NAK until the missing request comes."},

	{readRange, "9.7.5.1.2", Reads, Error, whole, "A READ response has a PSN of the range of a READ."},
	{readGap, "9.7.5.1.2", Reads, Error, wholeAtHost, "The responses to a READ have consecutive PSNs from where the request begins."},
	{readOpcode, "9.7.5.1.1", Reads, Error, anywhere, "The responses to a READ are FIRST, MIDDLE, …, LAST from where the request begins to where it ends, or ONLY."},
	{readLength, "9.7.5.1.1", Reads, Error, anywhere, "The responses to a READ carry as many bytes as the request asks for, a path MTU each but the last."},
	{readRedundant, "9.7.5.1.4", Reads, Warning, wholeAtHost, "A READ response is sent as often as it was requested."},
	{readAgain, "9.7.3.1", Reads, Error, anywhere, "A READ that is repeated in part asks for the first missing response to the same end, at the address that belongs to it."},
	{readDepth, "9.7.3.2", Reads, Error, whole, "No more READs and atomics are outstanding than the responder has granted."},

	{atomicReplay, "9.7.4.1.7", Atomics, Error, anywhere, "A repeated atomic is answered with the value of the first answer."},
	{atomicTwice, "9.7.4.1.7", Atomics, Error, wholeAtHost, "A repeated atomic is executed once."},
	{atomicValue, "9.4.5", Atomics, Note, whole, "An atomic returns what the atomic before it has left, unless something else wrote there."},
	{atomicAlign, "9.4.5", Atomics, Error, anywhere, "An atomic is executed only at an address that is a multiple of 8."},

	{rnrEarly, "9.7.5.2.8", RNR, Error, Clock, "After an RNR NAK the request is not repeated before the time in the NAK has passed."},
	{rnrHeld, "9.7.5.2.8", RNR, Warning, atHost | Clock, "While a requester waits after an RNR NAK it sends no other request."},
	{rnrSilence, "9.7.5.2.8", RNR, Warning, whole, "After an RNR NAK the responder answers nothing until the request comes again."},
	{rnrKind, "9.7.5.2.8", RNR, Error, anywhere, "Only a request that takes a receive, a READ or an atomic gets an RNR NAK."},

	{cmMAD, "12.6", Management, Error, anywhere, "A datagram to QP 1 is a well-formed message of the connection manager."},
	{cmReserved, "12.6", Management, Warning, anywhere, "Reserved fields of a message are zero."},
	{cmValue, "12.6", Management, Error, anywhere, "Codes in a message are not reserved ones: service type, reasons, statuses, the message that a REJ or MRA is about; IDs that it has to name are not zero."},
	{cmRepeat, "12.6", Management, Error, anywhere, "A repeated REQ, REP, DREQ, LAP or SIDR_REQ is the same as the first time."},
	{cmRetries, "12.6.5", Management, Error, anywhere, "A REQ, REP, DREQ or LAP is repeated at most as often as the REQ says (Max CM Retries)."},
	{cmEarly, "12.6.5", Management, Warning, Clock, "A REQ, REP, DREQ or LAP is not repeated before the time has passed that the peer has for its answer."},
	{cmMRA, "12.6.6", Management, Warning, atHost | Clock, "After an MRA a message is not repeated before the time that the MRA asks for has passed."},
	{cmLate, "12.6.5", Management, Note, wholeAtHost | Clock, "A REQ, REP, DREQ or LAP is answered in the time that the peer has for its answer, or that its MRA has asked for."},
	{cmUnasked, "12.9.7", Management, Error, whole, "A message has a cause: an RTU, and a REJ or MRA of a REP, has a REP; a DREQ or LAP an RTU or REP; a DREP a DREQ; an APR, and an MRA of a LAP, a LAP."},
	{cmSide, "12.9.7", Management, Error, anywhere, "REP, and REJ and MRA of a REQ, come from the passive end; RTU, and REJ and MRA of a REP, from the active one."},
	{cmRejected, "12.9.7", Management, Error, wholeAtHost | Clock, "An end that has sent a REJ does not go on with the handshake, unless its peer begins again."},
	{cmReject, "12.6.7", Management, Error, anywhere, "A REJ because of a timeout has the GUID of its sender as additional information."},
	{cmSIDR, "12.11", Management, Error, anywhere, "A SIDR_REP has the service ID of the SIDR_REQ, and names a queue pair if its status is valid."},
	{cmIDs, "12.6", Management, Error, anywhere, "A message names both ends of its connection by the IDs that they chose."},
	{cmTID, "13.4.6.4", Management, Warning, whole, "An answer has the transaction ID of what it answers."},
	{cmDepth, "12.6.8", Management, Error, anywhere, "The REP accepts no more READs in either direction than the REQ offers."},
	{cmMTU, "12.6.5", Management, Error, anywhere, "The path MTU in a REQ is one of the five."},
	{cmAddresses, "A11.4", Management, Error, anywhere, "The RDMA-IP header of a REQ has the addresses of the packet."},
	{cmPath, "12.6.5", Management, Warning, anywhere, "The primary path of a REQ has the addresses of the packet; an alternate path is another one, between addresses of one IP version."},
	{cmReady, "12.9.7", Management, Error, whole, "The passive end sends no request before it has received the RTU or a first request."},
	{cmOver, "12.9.8", Management, Warning, anywhere, "An end that has answered a DREQ sends no more requests."},

	{cnpFormat, "A17.9", Congestion, Error, anywhere, "A CNP has BECN set, PSN 0, no other flag, and 16 bytes of zeros."},
	{cnpUnmarked, "A17.9", Congestion, Error, wholeAtHost, "A CNP has a cause: a packet of that connection arrived with a congestion mark since the CNP before."},
	{cnpPacing, "A17.9", Congestion, Warning, Clock, "Within the scope that was given, CNPs are at least the given interval apart."},

	{counterNAK, noSection, Counting, Error, wholeAtHost, "NAKs for a sequence error are counted by the requester that gets them (packet_seq_err, rcvd_seq_err)."},
	{counterSequence, noSection, Counting, Error, anywhere, "Requests behind a missing one, and NAKs for that, are counted by the responder (out_of_sequence, out_of_seq_request, seq_nak_sent)."},
	{counterTimeout, noSection, Counting, Error, wholeAtHost | Clock, "Timeouts are counted by the requester (local_ack_timeout_err)."},
	{counterDuplicate, noSection, Counting, Error, wholeAtHost, "Requests that arrive again are counted by the responder (duplicate_request)."},
	{counterRNR, noSection, Counting, Error, anywhere, "RNR NAKs are counted by both ends (send_rnr_err, rcvd_rnr_err)."},
	{counterICRC, noSection, Counting, Error, wholeAtHost, "Packets with a wrong ICRC are counted by the host that gets them (icrc_err, rx_icrc_encapsulated)."},
	{counterCNP, noSection, Counting, Error, anywhere, "Congestion marks and CNPs are counted (np_ecn_marked_roce_packets, np_cnp_sent, rp_cnp_handled)."},
	{counterRetransmission, noSection, Counting, Error, anywhere, "Requests that are sent again are counted (retrans_pkts)."},
}
