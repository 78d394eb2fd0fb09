// Package inside gives packages of this module access to the objects behind the public objects of package roce. Package
// roce sets these functions in its initialization. Programs cannot import this package.
package inside

import (
	"github.com/goroce/roce/cm"
	"github.com/goroce/roce/internal/gsi"
	"github.com/goroce/roce/internal/nic"
	"github.com/goroce/roce/mr"
)

// Table is a table of numbered objects.
type Table interface {
	Len() int
	SetMax(n int)
}

var (
	// Agent returns the connection manager of a *roce.Device.
	Agent func(device any) *gsi.Agent

	// CompleteParam fills the defaults into a *roce.ConnParam: of a request if offer is nil, otherwise of the answer
	// to the offer. It fails with EINVAL if no connection can have the numbers.
	CompleteParam func(param any, offer *cm.Offer) error

	// ReleasePD closes a *roce.PD as soon as it has no objects, perhaps at once.
	ReleasePD func(pd any)

	// QP returns the queue pair of the NIC core behind a *roce.QP; for an XRC target, the queue
	// pair itself and not the handle.
	QP func(qp any) *nic.QP

	// NIC returns the NIC core of a *roce.Device.
	NIC func(device any) *nic.NIC

	// Keys returns the memory keys of a *roce.Device. The lock of the NIC guards them.
	Keys func(device any) *mr.Table

	// SRQs returns the shared receive queues of a *roce.Device. The lock of the NIC guards
	// them.
	SRQs func(device any) Table
)
