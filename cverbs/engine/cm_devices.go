package main

import (
	"bytes"

	"github.com/goroce/roce/cverbs/internal/abi"
	"github.com/goroce/roce/cverbs/internal/ucma"
	"github.com/goroce/roce/cverbs/internal/verbs"
)

// connections is the connection manager of the process.
var connections = ucma.New(openDevices, verbs.Unread)

// openDevices opens all devices that it can: an identifier may be bound to any. If none opens, it returns the
// first error.
func openDevices() (opened []ucma.Device, err error) {
	n, err := verbs.Devices(nil)
	if err != nil {
		return nil, err
	}
	infos := make([]abi.DeviceInfo, n)
	if _, err := verbs.Devices(infos); err != nil {
		return nil, err
	}
	for i := range infos {
		name, _, _ := bytes.Cut(infos[i].Name[:], []byte{0})
		const noEvents = -1
		ctx, oerr := verbs.Open(string(name), noEvents)
		if oerr == nil {
			d, derr := verbs.Device(ctx)
			if oerr = derr; derr == nil {
				opened = append(opened, ucma.Device{Device: d, Name: string(name)})
			}
		}
		if err == nil {
			err = oerr
		}
	}
	if len(opened) > 0 {
		err = nil
	}
	return opened, err
}
