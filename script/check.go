package script

import (
	"slices"
	"strings"
)

// vars are the variables that have a value at the statement being parsed.
type vars struct {
	names   []string // in the order of their definitions, for errors
	numbers map[string]bool
	packets map[string][]kind // the kinds that the packet can be of; nil: not known
}

// predefined are the variables that a connection sets, with their fields.
var predefined = map[string][]string{
	"mem":  {"va", "rkey", "len"},
	"peer": {"qpn", "psn", "next"},
	"own":  {"qpn", "psn", "next", "va", "rkey"},
}

func newVars() vars {
	return vars{names: []string{"mem", "peer", "own"}, numbers: map[string]bool{}, packets: map[string][]kind{}}
}

// name adds the name of a variable.
func (v *vars) name(name string) {
	if !slices.Contains(v.names, name) {
		v.names = append(v.names, name)
	}
}

func (v *vars) number(name string) { v.name(name); v.numbers[name] = true }

func (v *vars) packet(name string, kinds []kind) {
	v.name(name)
	if before, ok := v.packets[name]; ok && before == nil {
		return
	}
	v.packets[name] = append(v.packets[name], kinds...)
}

// known checks that each variable of an expression has a value.
func (p *parser) known(e *expr) error {
	for i := range e.terms {
		if t := &e.terms[i]; t.name != "" {
			if err := p.vars.find(t); err != nil {
				return err
			}
		}
	}
	return nil
}

// find checks that a variable has a value.
func (v *vars) find(t *term) error {
	if v.numbers[t.name] {
		return nil
	}
	base, of, _ := strings.Cut(t.name, ".")
	if fields := predefined[base]; fields != nil {
		if !slices.Contains(fields, of) {
			return errAt(t.pos, "there is no $%s: want one of $%s.%s", t.name, base, strings.Join(fields, ", $"+base+"."))
		}
		return nil
	}
	kinds, packet := v.packets[base]
	switch {
	case !packet && v.numbers[base]:
		return errAt(t.pos, "$%s is a number and has no field %q", base, of)
	case !packet:
		return errAt(t.pos, "$%s has no value here; there are $%s", base, strings.Join(v.names, ", $"))
	case of == "":
		return errAt(t.pos, "$%s is a packet: want one of its fields, like $%s.psn", base, base)
	case kinds != nil && !slices.ContainsFunc(kinds, func(k kind) bool { return k.gives(of) }):
		return errAt(t.pos, "$%s has no field %q", base, of)
	}
	return nil
}

// gives reports whether a captured packet of a kind can have a field.
func (k *kind) gives(name string) bool {
	if k.mad != "" {
		_, ok := getMAD(mads[k.mad](), name)
		return ok
	}
	f := fieldOf(name)
	return isAccessor(name) || f != nil && f.get != nil && f.of(k)
}

// constant returns the value of an expression without variables that is not relative.
func (e *expr) constant() (v uint64, ok bool) {
	v, ok = e.fixed()
	return v, ok && !e.relative
}

// fits checks the value of a setting, if it is a constant.
func (c *connectStep) fits(a *arg) error {
	v, ok := a.e.constant()
	switch {
	case !ok:
		return nil
	case c.method != "verbs":
		return connectFits(a, v)
	}
	if err := setTarget(new(TargetConfig), a.tok.key, v); err != nil {
		return &Error{Pos: a.tok.at, Err: err}
	}
	return nil
}

// fitKind checks that a constant fits into the field key of packets of kind k.
func (e *expr) fitKind(k *kind, key string) error {
	v, ok := e.constant()
	if !ok {
		return nil
	}
	if k.mad != "" {
		if err := setMAD(mads[k.mad](), key, v); err != nil {
			return &Error{Pos: e.pos, Err: err}
		}
		return nil
	}
	width, _, _ := strings.Cut(key, "@") // of an accessor
	if f := fieldOf(width); f != nil {
		return f.fits(v, e.pos)
	}
	return nil
}

// once checks that a word is not in the statement twice.
func once(seen map[string]bool, t *token, word string) error {
	if seen[word] {
		return errAt(t.pos, "%s is there twice", word)
	}
	seen[word] = true
	return nil
}

// payloadKeys are the fields that append to the payload. A statement may have each of them several times.
var payloadKeys = []string{"len", "u8", "u16", "u32", "u64", "zeros", "hex", "text"}
