package walls

import (
	"go/ast"
	"go/token"
	"strings"
	"testing"
)

// hashed are the functions that put numbers in an order of their own, with the reason.
var hashed = map[string]string{
	"sm/engine/recall.go": "the bytes are the input of a hash",
	"sm/elect/trust.go":   "the bytes are the input of a hash",
}

// TestNoOffsets keeps byte offsets of MADs and of their attributes in the codec:
// elsewhere a field is read and set by its name. PortInfo and SwitchInfo do not show
// their bytes at all.
func TestNoOffsets(t *testing.T) {
	codec := map[string]bool{module + "/sm/mad": true, module + "/sm/transport/ibsim": true, module + "/sm/transport/transporttest": true}
	for path, p := range list(t) {
		if !under(path, module+"/sm") && !under(path, module+"/smctl/probe") || codec[path] {
			continue
		}
		fset := token.NewFileSet()
		for _, f := range parse(t, fset, p) {
			name := fset.Position(f.Pos()).Filename
			why := hashed[name[max(0, strings.LastIndex(name, "/sm/"))+1:]]
			for _, at := range offsets(f) {
				if why == "" || !at.append {
					t.Errorf("%v: %s: name the field in sm/mad or ib", fset.Position(at.pos), at.what)
				}
			}
		}
	}
}

// offset is a place where bytes are read or written by their position.
type offset struct {
	pos    token.Pos
	what   string
	append bool
}

// offsets are those of a file: a literal index into what is named as bytes of the wire,
// and every use of package encoding/binary.
func offsets(f *ast.File) (out []offset) {
	wire := map[string]bool{"MAD": true, "Data": true, "data": true, "rec": true, "b": true, "raw": true, "buf": true,
		"MGID": true, "GID": true, "gid": true, "mgid": true}
	literal := func(e ast.Expr) bool {
		if sum, ok := e.(*ast.BinaryExpr); ok { // an offset from the start of a part
			if _, ok := sum.X.(*ast.CallExpr); !ok {
				e = sum.Y
			}
		}
		b, ok := e.(*ast.BasicLit)
		return ok && b.Kind == token.INT && b.Value != "0"
	}
	ast.Inspect(f, func(n ast.Node) bool {
		var x ast.Expr
		switch n := n.(type) {
		case *ast.IndexExpr:
			if literal(n.Index) {
				x = n.X
			}
		case *ast.SliceExpr:
			if literal(n.Low) || literal(n.High) {
				x = n.X
			}
		case *ast.SelectorExpr:
			if order, ok := n.X.(*ast.SelectorExpr); ok && (order.Sel.Name == "BigEndian" || order.Sel.Name == "LittleEndian") {
				out = append(out, offset{n.Pos(), "bytes of a number", strings.HasPrefix(n.Sel.Name, "Append")})
			}
		case *ast.ValueSpec:
			for _, v := range n.Values {
				if order, ok := v.(*ast.SelectorExpr); ok && strings.HasSuffix(order.Sel.Name, "Endian") {
					out = append(out, offset{n.Pos(), "a byte order", false})
				}
			}
		}
		name := ""
		switch x := x.(type) {
		case *ast.SelectorExpr:
			name = x.Sel.Name
		case *ast.Ident:
			name = x.Name
		}
		if wire[name] {
			out = append(out, offset{n.Pos(), "an offset into " + name, false})
		}
		return true
	})
	return out
}
