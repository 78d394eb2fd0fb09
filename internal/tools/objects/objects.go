// Package objects makes the verbs objects of one end of a tool and closes them together.
package objects

import (
	"errors"
	"io"
	"slices"

	"github.com/goroce/roce"
)

// Set makes objects in a separate protection domain. After the first error its methods make nothing and return nil, so a
// caller makes all objects and then checks Err once.
type Set struct {
	Dev *roce.Device
	PD  *roce.PD

	err  error
	made []io.Closer
}

// New returns a set with a protection domain and nothing else.
func New(d *roce.Device) *Set {
	pd := d.AllocPD()
	return &Set{Dev: d, PD: pd, made: []io.Closer{pd}}
}

// create calls f, unless an earlier call failed. Close closes the result.
func create[T io.Closer](s *Set, f func() (T, error)) (v T) {
	if s.err != nil {
		return v
	}
	if v, s.err = f(); s.err == nil {
		s.Add(v)
	}
	return v
}

// CQ makes a completion queue for n completions (ibv_create_cq).
func (s *Set) CQ(n int) *roce.CQ {
	return create(s, func() (*roce.CQ, error) { return s.Dev.CreateCQ(n) })
}

// MR allocates and registers n bytes (ibv_reg_mr). It takes memory of the link, if the link has any.
func (s *Set) MR(n int, access roce.Access) *roce.MR {
	return create(s, func() (*roce.MR, error) { return s.PD.AllocMR(n, access) })
}

// QP makes a queue pair (ibv_create_qp).
func (s *Set) QP(c roce.QPConfig) *roce.QP {
	return create(s, func() (*roce.QP, error) { return s.PD.CreateQP(c) })
}

// SRQ makes a shared receive queue (ibv_create_srq).
func (s *Set) SRQ(c roce.SRQConfig) *roce.SRQ {
	return create(s, func() (*roce.SRQ, error) { return s.PD.CreateSRQ(c) })
}

// Add adds c to the objects that Close closes.
func (s *Set) Add(c io.Closer) { s.made = append(s.made, c) }

// Conn takes the results of [roce.Device.Dial] or [roce.ConnRequest.Accept]. Close closes the connection. After an error
// Conn closes the set at once.
func (s *Set) Conn(c *roce.Conn, err error) (*roce.Conn, error) {
	if err != nil {
		s.Close()
		return nil, err
	}
	s.Add(c)
	return c, nil
}

// Err returns the error of the first object that could not be made, nil if there is none.
func (s *Set) Err() error { return s.err }

// Close closes all objects, the last made first.
func (s *Set) Close() error {
	var errs []error
	for _, c := range slices.Backward(s.made) {
		errs = append(errs, c.Close())
	}
	s.made = nil
	return errors.Join(errs...)
}
