package config

import (
	"slices"
	"strconv"
	"strings"
	"text/template/parse"
)

// preparer goes through a parsed template: it checks field names, makes default and has see missing fields, and sends
// every printed value through emit.
type preparer struct {
	leaf       *leaf
	roots      []string
	wrong, fix string
}

func (p *preparer) fail(wrong, fix string) {
	if p.wrong == "" {
		p.wrong, p.fix = wrong, fix
	}
}

// whole recognises a text that is nothing but {{json ...}}.
func (p *preparer) whole(list *parse.ListNode) {
	if len(list.Nodes) != 1 {
		return
	}
	a, ok := list.Nodes[0].(*parse.ActionNode)
	if !ok || len(a.Pipe.Decl) > 0 {
		return
	}
	last := a.Pipe.Cmds[len(a.Pipe.Cmds)-1]
	if id, ok := last.Args[0].(*parse.IdentifierNode); !ok || id.Ident != "json" {
		return
	}
	p.leaf.value = p.leaf.mode == modePlain
	if len(a.Pipe.Cmds) == 1 && len(last.Args) == 2 {
		if f, ok := last.Args[1].(*parse.FieldNode); ok {
			p.leaf.from = slices.Clone(f.Ident)
		}
	}
}

// list goes through nodes; atRoot says that the dot is still the whole data.
func (p *preparer) list(list *parse.ListNode, atRoot bool) {
	if list == nil {
		return
	}
	for _, n := range list.Nodes {
		switch n := n.(type) {
		case *parse.ActionNode:
			p.pipe(n.Pipe, atRoot)
			if len(n.Pipe.Decl) == 0 {
				n.Pipe.Cmds = append(n.Pipe.Cmds, command(n.Pipe.Pos, ident(emitName, n.Pipe.Pos)))
			}
		case *parse.IfNode:
			p.pipe(n.Pipe, atRoot)
			if len(n.Pipe.Decl) == 0 {
				n.Pipe.Cmds = append(n.Pipe.Cmds, command(n.Pipe.Pos, ident("_truth", n.Pipe.Pos)))
			}
			p.list(n.List, atRoot)
			p.list(n.ElseList, atRoot)
		case *parse.RangeNode:
			p.pipe(n.Pipe, atRoot)
			p.list(n.List, false)
			p.list(n.ElseList, atRoot)
		case *parse.WithNode:
			p.pipe(n.Pipe, atRoot)
			p.list(n.List, false)
			p.list(n.ElseList, atRoot)
		case *parse.TemplateNode:
			p.fail("{{template}} is not supported", "write the text where it is used")
		}
	}
}

func (p *preparer) pipe(pipe *parse.PipeNode, atRoot bool) {
	for i, c := range pipe.Cmds {
		soft := isSoft(c)
		for j, arg := range c.Args {
			p.check(arg, atRoot)
			if nested, ok := arg.(*parse.PipeNode); ok {
				p.pipe(nested, atRoot)
			}
			if soft && j > 0 {
				if look := lookup(arg); look != nil {
					c.Args[j] = &parse.PipeNode{NodeType: parse.NodePipe, Pos: arg.Position(), Cmds: []*parse.CommandNode{look}}
				}
			}
		}
		if i+1 < len(pipe.Cmds) && len(c.Args) == 1 && isSoft(pipe.Cmds[i+1]) {
			if look := lookup(c.Args[0]); look != nil {
				pipe.Cmds[i] = look
			}
		}
	}
}

// isSoft reports whether c is a function for which a missing field is no error.
func isSoft(c *parse.CommandNode) bool {
	id, ok := c.Args[0].(*parse.IdentifierNode)
	return ok && (id.Ident == "default" || id.Ident == "has")
}

// lookup turns a field into a call that gives nil when the field is missing; nil when n is no field.
func lookup(n parse.Node) *parse.CommandNode {
	pos := n.Position()
	args := []parse.Node{ident("_lookup", pos)}
	var path []string
	switch n := n.(type) {
	case *parse.FieldNode:
		args, path = append(args, &parse.DotNode{NodeType: parse.NodeDot, Pos: pos}), n.Ident
	case *parse.VariableNode:
		if len(n.Ident) == 1 {
			return nil
		}
		v := &parse.VariableNode{NodeType: parse.NodeVariable, Pos: pos, Ident: n.Ident[:1]}
		args, path = append(args, v), n.Ident[1:]
	case *parse.ChainNode:
		args, path = append(args, n.Node), n.Field
	default:
		return nil
	}
	for _, name := range path {
		args = append(args, &parse.StringNode{NodeType: parse.NodeString, Pos: pos, Quoted: strconv.Quote(name), Text: name})
	}
	return command(pos, args...)
}

func command(pos parse.Pos, args ...parse.Node) *parse.CommandNode {
	return &parse.CommandNode{NodeType: parse.NodeCommand, Pos: pos, Args: args}
}

func ident(name string, pos parse.Pos) *parse.IdentifierNode {
	return parse.NewIdentifier(name).SetPos(pos)
}

// check notes which fields n uses and refuses names that cannot exist.
func (p *preparer) check(n parse.Node, atRoot bool) {
	switch n := n.(type) {
	case *parse.FieldNode:
		if atRoot {
			p.field(n.Ident)
		}
	case *parse.VariableNode:
		if n.Ident[0] == "$" && len(n.Ident) > 1 {
			p.field(n.Ident[1:])
		}
	case *parse.ChainNode:
		p.check(n.Node, atRoot)
		if nested, ok := n.Node.(*parse.PipeNode); ok {
			p.pipe(nested, atRoot)
		}
	case *parse.IdentifierNode:
		if strings.HasPrefix(n.Ident, "_") {
			p.fail("there is no function "+n.Ident, "see docs/configuration.md for the functions")
		}
	}
}

func (p *preparer) field(path []string) {
	p.leaf.uses[path[0]] = true
	if p.roots == nil {
		return
	}
	if !slices.Contains(p.roots, path[0]) {
		fix := "use ." + strings.Join(p.roots, ", .")
		if near := closest(path[0], p.roots); near != "" {
			fix = "did you mean ." + near + "?"
		}
		p.fail("there is no ."+path[0]+" here", fix)
		return
	}
	own := ownFields
	if !slices.Contains(p.roots, "result") {
		own = checkFields
	}
	for root, known := range map[string][]string{"task": taskFields, "error": errorFields, "effect": own} {
		if path[0] == root && len(path) > 1 && (!slices.Contains(known, path[1]) || len(path) > 2) {
			p.fail("there is no ."+strings.Join(path, "."), "use ."+root+"."+strings.Join(known, ", ."+root+"."))
		}
	}
}
