//go:build linux

package surfaces

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/goroce/roce/bench/internal/harness"
)

// NewWeb makes the roles of requests to the server of examples/webserver by HTTP/1.1, over several connections
// at a time.
var NewWeb = newRole((*role).web)

func (r *role) web(ctx context.Context) (m harness.Measure, err error) {
	defer measureProcessor(&m)()
	if !r.spec.Active {
		return m, r.serveWeb(ctx)
	}
	t := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return r.dial(ctx) },
		MaxIdleConnsPerHost: r.connections(), MaxIdleConns: r.connections()}
	defer t.CloseIdleConnections()
	client := &http.Client{Transport: t}
	return together(r.spec, r.connections(), func(_ int, b []byte) error {
		a, err := client.Get("http://" + r.peer + "/index")
		if err != nil {
			return err
		}
		defer a.Body.Close()
		if a.StatusCode != http.StatusOK {
			return errors.New(a.Status)
		}
		_, err = io.Copy(io.Discard, a.Body)
		return err
	})
}

// serveWeb serves until ctx is done.
func (r *role) serveWeb(ctx context.Context) error {
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		fmt.Fprintf(w, "%s %s %d bytes", r.Proto, r.URL.Path, len(body))
	})}
	defer context.AfterFunc(ctx, func() {
		ended, stop := context.WithTimeout(context.Background(), time.Second)
		defer stop()
		s.Shutdown(ended)
	})()
	if err := s.Serve(r.listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
