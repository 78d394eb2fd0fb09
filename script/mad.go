package script

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/cm"
)

// mads are the messages of the connection manager by their names in scripts.
var mads = map[string]func() cm.Message{
	"REQ": func() cm.Message { return new(cm.REQ) }, "REP": func() cm.Message { return new(cm.REP) },
	"RTU": func() cm.Message { return new(cm.RTU) }, "REJ": func() cm.Message { return new(cm.REJ) },
	"MRA": func() cm.Message { return new(cm.MRA) }, "DREQ": func() cm.Message { return new(cm.DREQ) },
	"DREP": func() cm.Message { return new(cm.DREP) }, "LAP": func() cm.Message { return new(cm.LAP) },
	"APR": func() cm.Message { return new(cm.APR) }, "SIDR_REQ": func() cm.Message { return new(cm.SIDRREQ) },
	"SIDR_REP": func() cm.Message { return new(cm.SIDRREP) },
}

// madField finds a field of a message. Its name is that of the field in the Go struct of package cm, in lower case. A field of a nested
// path has both names, like "primary.hoplimit".
func madField(m cm.Message, name string) (v reflect.Value, ok bool) {
	v = reflect.ValueOf(m).Elem()
	for part := range strings.SplitSeq(name, ".") {
		if v.Kind() != reflect.Struct {
			return v, false
		}
		i := slices.IndexFunc(reflect.VisibleFields(v.Type()), func(f reflect.StructField) bool {
			return !f.Anonymous && strings.ToLower(f.Name) == part
		})
		if i < 0 {
			return v, false
		}
		v = v.FieldByIndex(reflect.VisibleFields(v.Type())[i].Index)
	}
	switch v.Kind() {
	case reflect.Bool, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return v, true
	}
	return v, v.Kind() == reflect.Array && name == "private"
}

// MADFields lists the fields of a message that scripts can name.
func MADFields(message string) (names []string) {
	make, ok := mads[message]
	if !ok {
		return nil
	}
	var walk func(prefix string, t reflect.Type)
	walk = func(prefix string, t reflect.Type) {
		for _, f := range reflect.VisibleFields(t) {
			name := prefix + strings.ToLower(f.Name)
			switch {
			case f.Anonymous:
			case f.Type == reflect.TypeFor[cm.Path]():
				walk(name+".", f.Type)
			case f.Type.Kind() != reflect.Array || name == "private":
				names = append(names, name)
			}
		}
	}
	walk("", reflect.TypeOf(make()).Elem())
	return names
}

// getMAD reads a field of a message.
func getMAD(m cm.Message, name string) (uint64, bool) {
	v, ok := madField(m, name)
	switch {
	case !ok || v.Kind() == reflect.Array:
		return 0, false
	case v.Kind() == reflect.Bool:
		return bit(v.Bool()), true
	}
	return v.Uint(), true
}

// setMAD writes a field of a message.
func setMAD(m cm.Message, name string, value uint64) error {
	v, ok := madField(m, name)
	switch {
	case !ok || v.Kind() == reflect.Array:
		return fmt.Errorf("%v has no field %q", m.Attribute(), name)
	case v.Kind() == reflect.Bool:
		v.SetBool(value != 0)
	case v.OverflowUint(value):
		return fmt.Errorf("%s=%s does not fit", name, number(value))
	default:
		v.SetUint(value)
		return kept(m, name, value)
	}
	return nil
}

// kept checks that a value fits into its field, by encoding and decoding the message: some fields have fewer bits than their type in Go.
func kept(m cm.Message, name string, value uint64) error {
	var b [cm.MADLen]byte
	m.Put(&b)
	d, err := cm.DecodeMAD(b[:])
	if err != nil {
		return nil // a script may also send a message that cannot be decoded
	}
	if got, ok := getMAD(d, name); ok && got != value {
		return fmt.Errorf("%s=%s does not fit", name, number(value))
	}
	return nil
}

// setPrivate writes the private data of a message, from byte at on.
func setPrivate(m cm.Message, b []byte, at int) error {
	v, ok := madField(m, "private")
	if !ok {
		return fmt.Errorf("%v has no private data", m.Attribute())
	}
	if room := v.Len() - at; len(b) > room {
		return fmt.Errorf("%d bytes of private data, %v has room for %d", len(b), m.Attribute(), room)
	}
	reflect.Copy(v.Slice(at, v.Len()), reflect.ValueOf(b))
	return nil
}

// madPacket wraps a message into a packet to queue pair 1.
func madPacket(m cm.Message) *packet {
	var mad [cm.MADLen]byte
	m.Put(&mad)
	const head = bth.BTHLen + bth.DETHLen
	b := make([]byte, head, head+cm.MADLen)
	bth.PutBTH(b, bth.UDSendOnly, bth.MigReq, 0, bth.DefaultPKey, bth.QPNGSI, 1)
	bth.PutDETH(b[bth.BTHLen:], bth.QKeyGSI, bth.QPNGSI)
	return &packet{body: append(b, mad[:]...), op: bth.UDSendOnly, mad: true}
}
