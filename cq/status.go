package cq

import "fmt"

// Status is the result of a work request, with the values of enum
// ibv_wc_status. It is not an error; [Status.Err] makes one of it.
type Status uint8

const (
	Success          Status = 0  // SUCCESS
	LocLenErr        Status = 1  // LOC_LEN_ERR
	LocQPOpErr       Status = 2  // LOC_QP_OP_ERR
	LocEECOpErr      Status = 3  // LOC_EEC_OP_ERR
	LocProtErr       Status = 4  // LOC_PROT_ERR
	WRFlushErr       Status = 5  // WR_FLUSH_ERR
	MWBindErr        Status = 6  // MW_BIND_ERR
	BadRespErr       Status = 7  // BAD_RESP_ERR
	LocAccessErr     Status = 8  // LOC_ACCESS_ERR
	RemInvReqErr     Status = 9  // REM_INV_REQ_ERR: NAK invalid request
	RemAccessErr     Status = 10 // REM_ACCESS_ERR: NAK remote access error
	RemOpErr         Status = 11 // REM_OP_ERR: NAK remote operational error
	RetryExcErr      Status = 12 // RETRY_EXC_ERR: the peer did not answer
	RNRRetryExcErr   Status = 13 // RNR_RETRY_EXC_ERR: the peer never posted a receive
	LocRDDViolErr    Status = 14 // LOC_RDD_VIOL_ERR
	RemInvRDReqErr   Status = 15 // REM_INV_RD_REQ_ERR
	RemAbortErr      Status = 16 // REM_ABORT_ERR
	InvEECNErr       Status = 17 // INV_EECN_ERR
	InvEECStateErr   Status = 18 // INV_EEC_STATE_ERR
	FatalErr         Status = 19 // FATAL_ERR
	RespTimeoutErr   Status = 20 // RESP_TIMEOUT_ERR
	GeneralErr       Status = 21 // GENERAL_ERR
	TMErr            Status = 22 // TM_ERR
	TMRndvIncomplete Status = 23 // TM_RNDV_INCOMPLETE
)

// statuses holds the verbs name of each status and what it means in words.
var statuses = [...]struct{ name, text string }{
	Success:          {"SUCCESS", "success"},
	LocLenErr:        {"LOC_LEN_ERR", "local length error: the message is longer than the buffer for it"},
	LocQPOpErr:       {"LOC_QP_OP_ERR", "local queue pair operation error"},
	LocEECOpErr:      {"LOC_EEC_OP_ERR", "local end-to-end context operation error"},
	LocProtErr:       {"LOC_PROT_ERR", "local protection error: a scatter/gather element is not covered by its L_Key"},
	WRFlushErr:       {"WR_FLUSH_ERR", "work request flushed: the queue pair is in the error state"},
	MWBindErr:        {"MW_BIND_ERR", "memory window bind error"},
	BadRespErr:       {"BAD_RESP_ERR", "bad response: the peer's response violates the protocol"},
	LocAccessErr:     {"LOC_ACCESS_ERR", "local access error"},
	RemInvReqErr:     {"REM_INV_REQ_ERR", "remote invalid request: the peer refused the operation"},
	RemAccessErr:     {"REM_ACCESS_ERR", "remote access error: the R_Key, range or right is not granted by the peer"},
	RemOpErr:         {"REM_OP_ERR", "remote operation error: the peer could not execute it"},
	RetryExcErr:      {"RETRY_EXC_ERR", "transport retry counter exceeded: the peer does not answer"},
	RNRRetryExcErr:   {"RNR_RETRY_EXC_ERR", "receiver-not-ready retry counter exceeded: the peer posts no receives"},
	LocRDDViolErr:    {"LOC_RDD_VIOL_ERR", "local reliable datagram domain violation"},
	RemInvRDReqErr:   {"REM_INV_RD_REQ_ERR", "remote invalid reliable datagram request"},
	RemAbortErr:      {"REM_ABORT_ERR", "operation aborted by the peer"},
	InvEECNErr:       {"INV_EECN_ERR", "invalid end-to-end context number"},
	InvEECStateErr:   {"INV_EEC_STATE_ERR", "invalid end-to-end context state"},
	FatalErr:         {"FATAL_ERR", "fatal error"},
	RespTimeoutErr:   {"RESP_TIMEOUT_ERR", "response timeout"},
	GeneralErr:       {"GENERAL_ERR", "general error"},
	TMErr:            {"TM_ERR", "tag matching error"},
	TMRndvIncomplete: {"TM_RNDV_INCOMPLETE", "tag matching rendezvous incomplete"},
}

// String returns the verbs name without its prefix: "RETRY_EXC_ERR".
func (s Status) String() string {
	if int(s) < len(statuses) {
		return statuses[s].name
	}
	return fmt.Sprintf("Status(%d)", uint8(s))
}

// Err returns nil for [Success] and a [StatusError] otherwise.
func (s Status) Err() error {
	if s == Success {
		return nil
	}
	return StatusError(s)
}

// StatusError is a status other than [Success] as an error. Compare it with
// errors.Is and the constants below:
//
//	if errors.Is(err, cq.RetryExceeded) { … }
//
// or take the status out of it with errors.As.
type StatusError Status

// The statuses a program tells apart. Any other is StatusError(status).
const (
	LocalLength        = StatusError(LocLenErr)
	LocalOperation     = StatusError(LocQPOpErr)
	LocalProtection    = StatusError(LocProtErr)
	Flushed            = StatusError(WRFlushErr)
	BindFailed         = StatusError(MWBindErr)
	BadResponse        = StatusError(BadRespErr)
	RemoteInvalid      = StatusError(RemInvReqErr)
	RemoteAccess       = StatusError(RemAccessErr)
	RemoteOperation    = StatusError(RemOpErr)
	RetryExceeded      = StatusError(RetryExcErr)
	RNRRetryExceeded   = StatusError(RNRRetryExcErr)
	ResponderTimedOut  = StatusError(RespTimeoutErr)
	UnspecifiedFailure = StatusError(GeneralErr)
)

// Status returns the status in e.
func (e StatusError) Status() Status { return Status(e) }

// Error describes the status as ibv_wc_status_str does, with its verbs name.
func (e StatusError) Error() string {
	if int(e) < len(statuses) {
		return statuses[e].text + " (" + statuses[e].name + ")"
	}
	return "work request failed: " + Status(e).String()
}

// Timeout reports whether the peer did not answer, so that a caller can check net.Error instead of statuses.
func (e StatusError) Timeout() bool {
	return e == RetryExceeded || e == RNRRetryExceeded || e == ResponderTimedOut
}

// Opcode says what kind of work request completed, with the values of enum
// ibv_wc_opcode. Receives have bit 7 set.
type Opcode uint8

const (
	OpSend            Opcode = 0   // SEND
	OpRDMAWrite       Opcode = 1   // RDMA_WRITE
	OpRDMARead        Opcode = 2   // RDMA_READ
	OpCompSwap        Opcode = 3   // COMP_SWAP
	OpFetchAdd        Opcode = 4   // FETCH_ADD
	OpBindMW          Opcode = 5   // BIND_MW
	OpLocalInv        Opcode = 6   // LOCAL_INV
	OpTSO             Opcode = 7   // TSO
	OpFlush           Opcode = 8   // FLUSH
	OpAtomicWrite     Opcode = 9   // ATOMIC_WRITE
	OpRegMR           Opcode = 10  // REG_MR, as the kernel's IB_WC_REG_MR
	OpMaskedCompSwap  Opcode = 11  // MASKED_COMP_SWAP, of the kernel's enum ib_wc_opcode
	OpMaskedFetchAdd  Opcode = 12  // MASKED_FETCH_ADD
	OpSendEnable      Opcode = 13  // SEND_ENABLE
	OpRecvEnable      Opcode = 14  // RECV_ENABLE
	OpCQEWait         Opcode = 15  // CQE_WAIT
	OpRecv            Opcode = 128 // RECV
	OpRecvRDMAWithImm Opcode = 129 // RECV_RDMA_WITH_IMM
)

var sendOpcodes = [...]string{"SEND", "RDMA_WRITE", "RDMA_READ", "COMP_SWAP", "FETCH_ADD", "BIND_MW", "LOCAL_INV", "TSO", "FLUSH", "ATOMIC_WRITE",
	"REG_MR", "MASKED_COMP_SWAP", "MASKED_FETCH_ADD", "SEND_ENABLE", "RECV_ENABLE", "CQE_WAIT"}
var recvOpcodes = [...]string{"RECV", "RECV_RDMA_WITH_IMM"}

// Recv reports whether a receive completed.
func (o Opcode) Recv() bool { return o&OpRecv != 0 }

// String returns the verbs name without its prefix: "RDMA_WRITE".
func (o Opcode) String() string {
	switch i := int(o &^ OpRecv); {
	case !o.Recv() && i < len(sendOpcodes) && sendOpcodes[i] != "":
		return sendOpcodes[i]
	case o.Recv() && i < len(recvOpcodes):
		return recvOpcodes[i]
	}
	return fmt.Sprintf("Opcode(%d)", uint8(o))
}

// Flags says which optional fields of a [WC] are valid, with the values of
// enum ibv_wc_flags.
type Flags uint8

const (
	GRH      Flags = 1 // the first 40 bytes of the buffer hold the GRH area (UD)
	WithImm  Flags = 2 // Imm is valid
	IPCsumOK Flags = 4 // never set here
	WithInv  Flags = 8 // InvKey is valid. (rxe's user library delivers 4 instead.)
)

// String lists the flags by their verbs names.
func (f Flags) String() string {
	s := ""
	for i, n := range [...]string{"GRH", "WITH_IMM", "IP_CSUM_OK", "WITH_INV"} {
		if f&(1<<i) == 0 {
			continue
		}
		if s != "" {
			s += "|"
		}
		s += n
	}
	if rest := f &^ 15; rest != 0 {
		if s != "" {
			s += "|"
		}
		s += fmt.Sprintf("%#x", uint8(rest))
	}
	return s
}
