package qp

// Counters are the protocol counters of one shard. The first block has the names and meanings of rxe's hw_counters.
// The second has counters that rxe lacks. They are plain numbers: the shard's owner guards them.
type Counters struct {
	SentPkts          uint64 // packets handed to the port
	RcvdPkts          uint64 // packets that passed all checks
	DuplicateRequest  uint64 // requests with a PSN already executed
	OutOfSeqRequest   uint64 // requests with a PSN beyond the expected one
	RcvdRNRErr        uint64 // receiver-not-ready NAKs received
	SendRNRErr        uint64 // receiver-not-ready NAKs sent
	RcvdSeqErr        uint64 // sequence NAKs received
	AckDeferred       uint64 // acknowledgements merged into a later one
	RetryExceededErr  uint64 // work requests failed with RETRY_EXC_ERR
	RetryRNRExceeded  uint64 // work requests failed with RNR_RETRY_EXC_ERR
	CompleterRetryErr uint64 // times the requester went back
	SendErr           uint64 // work requests that failed locally
	RDMASends         uint64 // SENDs completed
	RDMARecvs         uint64 // receives completed

	RDMAWrites      uint64 // WRITEs of peers executed
	ICRCErr         uint64 // packets with a wrong ICRC
	StrangeID       uint64 // of these, packets with an Identification that is not near those of the peer
	WeakICRC        uint64 // packets whose ICRC could be checked in 16 of its 32 bits only: over UDP sockets and IPv4
	LocalAckTimeout uint64 // ACK timers that expired
	ImpliedNAK      uint64 // answers that the peer skipped, as a later answer showed
	RetransPkts     uint64 // request packets sent again
	PartialReads    uint64 // of these, READs and atomics that request only the missing responses
	EarlyResponses  uint64 // READ and atomic responses kept although earlier ones were missing
	HeldRequests    uint64 // requests kept although earlier ones were missing
	HoldRefused     uint64 // gaps without a hold: the budget was used up, or the hold was full
	PrematureNAK    uint64 // NAKs for requests that were only late
	SingleRepairs   uint64 // requests sent again alone
	Probes          uint64 // request packets sent again to learn which PSN the peer expects
	SeqNAKSent      uint64 // sequence NAKs sent
	FatalNAKSent    uint64 // NAKs 0x61–0x63 sent
	FatalNAKRcvd    uint64 // NAKs 0x61–0x63 received
	GhostAck        uint64 // answers to requests that are not outstanding
	WrongPeer       uint64 // packets from or to an address that is not the connection's
	WrongState      uint64 // packets the state of the queue pair refuses
	WrongTransport  uint64 // packets of another service type
	QKeyViolation   uint64 // UD packets with a wrong Q_Key
	UDNoReceive     uint64 // UD and UC messages dropped: no receive, a receive that is too small, or refused
	DupDropped      uint64 // requests that could not be answered: duplicates, READs, atomics and CONNECTs
	PathMigrations  uint64 // changes over to the alternate path
	PathMigRefused  uint64 // packets of a peer that changed over to a path that is not our alternate one
	LatePath        uint64 // packets accepted over the path before the migration
	ECNMarked       uint64 // packets that a switch marked: Congestion Experienced
	CNPsSent        uint64 // congestion notification packets sent
	CNPsHandled     uint64 // congestion notification packets that congestion control took
	CNPsIgnored     uint64 // congestion notification packets for queue pairs without congestion control
}

// Add adds d to c, field by field.
func (c *Counters) Add(d *Counters) {
	cf, df := c.fields(), d.fields()
	for i := range cf {
		*cf[i].V += *df[i].V
	}
}

// Field is one counter with its name.
type Field struct {
	Name string
	V    *uint64
}

// Fields lists the counters in the order of rxe's hw_counters, then ours.
func (c *Counters) Fields() []Field {
	f := c.fields()
	return f[:]
}

func (c *Counters) fields() [45]Field {
	return [...]Field{
		{"sent_pkts", &c.SentPkts}, {"rcvd_pkts", &c.RcvdPkts}, {"duplicate_request", &c.DuplicateRequest},
		{"out_of_seq_request", &c.OutOfSeqRequest}, {"rcvd_rnr_err", &c.RcvdRNRErr}, {"send_rnr_err", &c.SendRNRErr},
		{"rcvd_seq_err", &c.RcvdSeqErr}, {"ack_deferred", &c.AckDeferred}, {"retry_exceeded_err", &c.RetryExceededErr},
		{"retry_rnr_exceeded_err", &c.RetryRNRExceeded}, {"completer_retry_err", &c.CompleterRetryErr}, {"send_err", &c.SendErr},
		{"rdma_sends", &c.RDMASends}, {"rdma_recvs", &c.RDMARecvs},
		{"rdma_writes", &c.RDMAWrites}, {"icrc_err", &c.ICRCErr}, {"strange_id", &c.StrangeID}, {"weak_icrc", &c.WeakICRC}, {"local_ack_timeout_err", &c.LocalAckTimeout}, {"implied_nak_seq_err", &c.ImpliedNAK},
		{"retrans_pkts", &c.RetransPkts}, {"partial_reads", &c.PartialReads}, {"early_responses", &c.EarlyResponses}, {"held_requests", &c.HeldRequests}, {"hold_refused", &c.HoldRefused},
		{"premature_nak", &c.PrematureNAK}, {"single_repairs", &c.SingleRepairs}, {"probe_pkts", &c.Probes}, {"seq_nak_sent", &c.SeqNAKSent}, {"fatal_nak_sent", &c.FatalNAKSent},
		{"fatal_nak_rcvd", &c.FatalNAKRcvd}, {"ghost_ack", &c.GhostAck}, {"wrong_peer", &c.WrongPeer},
		{"wrong_state", &c.WrongState}, {"wrong_transport", &c.WrongTransport}, {"qkey_violation", &c.QKeyViolation},
		{"ud_no_receive", &c.UDNoReceive}, {"dup_dropped", &c.DupDropped},
		{"path_migrations", &c.PathMigrations}, {"path_mig_refused", &c.PathMigRefused}, {"late_path", &c.LatePath},
		{"np_ecn_marked_roce_packets", &c.ECNMarked}, {"np_cnp_sent", &c.CNPsSent}, {"rp_cnp_handled", &c.CNPsHandled},
		{"rp_cnp_ignored", &c.CNPsIgnored},
	}
}
