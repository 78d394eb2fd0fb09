package devinfo

import (
	"context"
	"fmt"
	"io"

	"github.com/goroce/roce"
)

// Watch prints the asynchronous events of an open NIC, as ibv_asyncwatch does. It returns nil when ctx ends, and an error
// when the NIC's interface is removed.
func Watch(ctx context.Context, w io.Writer, name string, d *roce.Device) error {
	if _, err := fmt.Fprintf(w, "%s: watching asynchronous events\n", name); err != nil {
		return err
	}
	for {
		e, err := d.NextEvent(ctx)
		if err != nil && ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		about := ""
		switch {
		case e.Port != 0:
			about = fmt.Sprintf(", port %d", e.Port)
		case e.QP != nil:
			about = fmt.Sprintf(", qp %v", e.QP.Num())
		}
		if _, err := fmt.Fprintf(w, "  event_type %v (%d)%s\n", e.Type, e.Type, about); err != nil {
			return err
		}
		if e.Type == roce.EventDeviceFatal {
			return fmt.Errorf("%s: %w", name, roce.ErrNoDevice)
		}
	}
}
