// Package ofi is libfabric's connected endpoints (FI_EP_MSG) in Go: fabrics,
// domains, passive and active endpoints, event queues, completion queues. The
// protocol is that of libfabric's verbs provider (FI_PROTO_RDMA_CM_IB_RC), so the
// peer may be a program written for libfabric. It is a thin layer that adds
// libfabric's names and rules to package roce.
//
// # Names
//
//	fi_getinfo, fi_info            GetInfo, Info
//	fi_fabric, fi_close            OpenFabric, Fabric.Close
//	fi_domain                      Fabric.OpenDomain
//	fi_eq_open, fi_eq_sread        Fabric.OpenEQ, EQ.Read; fi_eq_read: EQ.TryRead
//	fi_eq_readerr                  the error of EQ.Read, an *EQError
//	fi_passive_ep, fi_pep_bind     Fabric.OpenPassive
//	fi_control with FI_BACKLOG     PassiveEndpoint.SetBacklog
//	fi_listen, fi_reject           PassiveEndpoint.Listen, ConnReq.Reject
//	FI_CONNREQ, FI_CONNECTED, FI_SHUTDOWN   ConnRequest, Connected, Shutdown
//	fi_endpoint, fi_ep_bind        Domain.OpenEndpoint, Endpoint.Bind…
//	fi_enable                      Endpoint.Enable
//	fi_connect, fi_accept          Endpoint.Connect, Endpoint.Accept
//	fi_shutdown                    Endpoint.Shutdown
//	fi_getname, fi_getpeer         PassiveEndpoint.Name, Endpoint.Name, Endpoint.Peer
//	fi_mr_reg, fi_mr_desc, fi_mr_key   Domain.RegMR, MR.Desc, MR.Key
//	fi_cq_open, fi_cq_read, fi_cq_sread   Domain.OpenCQ, CQ.Read, CQ.SRead
//	fi_cq_readerr                  the error of CQ.Read, a *CQError
//	fi_send, fi_senddata, fi_inject    Endpoint.Send, SendData, Inject
//	fi_recv, fi_cancel             Endpoint.Recv, Cancel
//	fi_write, fi_writedata, fi_read    Endpoint.Write, WriteData, Read
//	fi_atomic, fi_fetch_atomic, fi_compare_atomic   Endpoint.Atomic, FetchAtomic, CompareAtomic
//	fi_srx_context                 Domain.OpenSharedRecv
//
// A program names memory by the slice and the descriptor of its region
// (FI_MR_LOCAL); the peer names it by address (FI_MR_VIRT_ADDR). Errors wrap the
// errno that libfabric returns: errors.Is(err, syscall.EAGAIN).
//
// # Private data
//
// Connect, Accept and Reject send up to [MaxPrivateData] bytes, with their length, as
// the verbs provider does.
package ofi
