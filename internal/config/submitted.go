package config

import (
	"errors"
	"fmt"
	"slices"
	"text/template/parse"

	"github.com/onefold-dev/onefold/api"
)

// Limits of effects that a submit or an answer brings. They are a caller's, so that what they cost is bounded: their
// number and size, how much of the data they can print, and how much one can become.
const (
	MaxSubmittedEffects = 20
	maxSubmittedBytes   = 64 << 10
	maxSubmittedPrints  = 50
	maxSubmittedRender  = 8 << 20
)

// origin says where effects come from, and so what they may do.
type origin int

const (
	fromFile   origin = iota
	fromSubmit        // templates that print fields, and nothing that loops
	fromAnswer        // no templates: a service says what it means
)

// SubmittedEffects reads the effects of a submit. Their templates may print fields of the data and no more. sql is the
// operator's alone. The error is an *api.Error with code invalid_field. Whether their destinations may be used is for
// the caller to say.
func SubmittedEffects(raw []byte, o Opts) ([]EffectSpec, error) {
	return foreignEffects(raw, o, fromSubmit)
}

// AnsweredEffects reads the effects that a service gave back with its answer: as SubmittedEffects, but taken as they
// stand.
func AnsweredEffects(raw []byte, o Opts) ([]EffectSpec, error) {
	return foreignEffects(raw, o, fromAnswer)
}

func foreignEffects(raw []byte, o Opts, from origin) ([]EffectSpec, error) {
	if len(raw) == 0 {
		return nil, nil
	}
	refuse := func(field, message, fix string) error {
		e := api.Errorf(api.CodeInvalidField, "%s: %s", field, message).WithField(field)
		if fix != "" {
			e = e.WithFix("%s", fix)
		}
		return e
	}
	if len(raw) > maxSubmittedBytes {
		return nil, refuse("effects", fmt.Sprintf("%d bytes, %d are allowed", len(raw), maxSubmittedBytes), "")
	}
	v, err := parseJSON(raw)
	switch {
	case err != nil:
		return nil, refuse("effects", "is not JSON: "+jsonMessage(err), "")
	case v.t == tNull:
		return nil, nil
	case v.t != tList:
		return nil, refuse("effects", "is not an array of effects", "")
	case len(v.items) > MaxSubmittedEffects:
		return nil, refuse("effects", fmt.Sprintf("%d effects, %d are allowed", len(v.items), MaxSubmittedEffects), "")
	}
	p := &problems{file: "effects"}
	d := newDecoder(p, o.without("sql"))
	d.from = from
	specs := d.effects(v, "effects")
	for i := range specs {
		specs[i].max = maxSubmittedRender
	}
	var wrong Errors
	if errors.As(p.err(), &wrong) {
		return nil, refuse(wrong[0].Path, wrong[0].Message, wrong[0].Fix)
	}
	return specs, nil
}

// without is o with one effect type less.
func (o Opts) without(effect string) Opts {
	types := map[string]bool{}
	for _, t := range designEffects {
		types[t] = t != effect && (o.EffectTypes == nil || o.EffectTypes[t])
	}
	o.EffectTypes = types
	return o
}

// Text returns a field of the effect where it is fixed: not made by a template.
func (e *EffectSpec) Text(field string) (string, bool) {
	l := e.texts[field]
	if l == nil || l.t != nil {
		return "", false
	}
	return l.text, true
}

// plainFuncs are what a submitted template may call.
var plainFuncs = []string{"json", "default", "lower", "upper", "trim", "join"}

// plain says what in a template a submit may not use.
func plain(list *parse.ListNode) (prints int, wrong string) {
	for _, n := range list.Nodes {
		switch n := n.(type) {
		case *parse.TextNode, *parse.CommentNode:
		case *parse.ActionNode:
			prints++
			if !plainPipe(n.Pipe) {
				return prints, "only fields and the functions json, default, lower, upper, trim and join can be used in a submit"
			}
		default:
			return prints, "if, range, with and the like cannot be used in a submit"
		}
	}
	return prints, ""
}

// plainPipe admits one function after another at most: each json of a json doubles what it quotes, and a separator out of
// the data could be as long as the list.
func plainPipe(p *parse.PipeNode) bool {
	if len(p.Decl) > 0 || len(p.Cmds) > 2 {
		return false
	}
	for _, c := range p.Cmds {
		for i, arg := range c.Args {
			switch arg := arg.(type) {
			case *parse.FieldNode, *parse.StringNode, *parse.NumberNode, *parse.BoolNode, *parse.NilNode:
			case *parse.IdentifierNode:
				if i > 0 || !slices.Contains(plainFuncs, arg.Ident) || arg.Ident == "join" && !constant(c.Args[1:]) {
					return false
				}
			default:
				return false
			}
		}
	}
	return true
}

func constant(args []parse.Node) bool {
	if len(args) == 0 {
		return false
	}
	_, ok := args[0].(*parse.StringNode)
	return ok
}
