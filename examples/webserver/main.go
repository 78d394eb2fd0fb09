// Command webserver shows that programs with net.Conn can use RDMA: net/http on an rsocket listener, over HTTP/1.1
// and over HTTP/2 as gRPC uses it. It runs without privileges between two NICs inside the process. With -dev the
// server is on a network interface, where rocectl and programs under librspreload can connect.
//
//	$ go run ./examples/webserver
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/link"
	"github.com/goroce/roce/link/mem"
	"github.com/goroce/roce/rsocket"
)

// spin is how long the device polls before it sleeps: a server that has the machine for itself answers more requests if it
// sleeps less.
const spin = 200 * time.Microsecond

func main() {
	dev := flag.String("dev", "", "serve on this network interface (needs CAP_NET_RAW)")
	addr := flag.String("listen", "10.0.0.1:8080", "serve at this `address:port`")
	flag.Parse()
	if *dev == "" {
		if err := demo(log.Writer()); err != nil {
			log.Fatal(err)
		}
		return
	}
	nic, err := roce.OpenInterface(*dev, roce.InterfaceConfig{Options: roce.Options{Spin: spin}})
	if err != nil {
		log.Fatal(err)
	}
	defer nic.Close()
	l, err := rsocket.Listen(nic, *addr, rsocket.Config{})
	if err != nil {
		log.Fatal(err)
	}
	log.Print(newServer().Serve(l))
}

// newServer returns an ordinary server, which does not know RDMA.
func newServer() *http.Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Server{Protocols: protocols, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		fmt.Fprintf(w, "%s %s %d bytes", r.Proto, r.URL.Path, len(body))
	})}
}

// newClient returns an ordinary client that dials over RDMA.
func newClient(nic *roce.Device, http2 bool) *http.Client {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(!http2)
	protocols.SetUnencryptedHTTP2(http2)
	return &http.Client{Transport: &http.Transport{Protocols: protocols,
		DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) {
			return rsocket.Dial(ctx, nic, addr, rsocket.Config{})
		}}}
}

// demo runs the server and the client inside the process.
func demo(out io.Writer) error {
	hub := mem.NewHub(mem.Config{MTU: 4200})
	server, err := open(hub, "10.0.0.1")
	if err != nil {
		return err
	}
	defer server.Close()
	client, err := open(hub, "10.0.0.2")
	if err != nil {
		return err
	}
	defer client.Close()
	l, err := rsocket.Listen(server, "10.0.0.1:8080", rsocket.Config{})
	if err != nil {
		return err
	}
	s := newServer()
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	for _, http2 := range []bool{false, true} {
		c := newClient(client, http2)
		r, err := c.Post("http://10.0.0.1:8080/upload", "text/plain", strings.NewReader(strings.Repeat("rdma", 1<<18)))
		if err != nil {
			return err
		}
		answer, err := io.ReadAll(r.Body)
		r.Body.Close()
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "%s: %s\n", r.Status, answer)
		c.CloseIdleConnections()
	}
	if err := s.Shutdown(context.Background()); err != nil {
		return err
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// open opens a NIC on the wire in the process.
func open(hub *mem.Hub, addr string) (*roce.Device, error) {
	ip := netip.MustParseAddr(addr)
	port, err := hub.Port(addr, roce.DerivedMAC(ip))
	if err != nil {
		return nil, err
	}
	return roce.Open(roce.Config{Ports: []link.Port{port}, Addrs: []netip.Addr{ip}, Options: roce.Options{Spin: spin}})
}
