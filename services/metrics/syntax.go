package metrics

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/prometheus/prometheus/promql/parser"
)

// maxQueryBytes bounds what one query can ask for: regular expressions are compiled while it is parsed, which no deadline ends.
const maxQueryBytes = 4 << 10

// checkText refuses what no engine needs to see.
func checkText(field, query string) error {
	switch {
	case strings.TrimSpace(query) == "":
		return invalid(field, "is empty; use a PromQL expression, such as up")
	case len(query) > maxQueryBytes:
		return invalid(field, fmt.Sprintf("has %d bytes; at most %d are served", len(query), maxQueryBytes))
	}
	return nil
}

// shape is what an expression's text tells of its answer.
type shape struct {
	// sorted says that the order of the answer's series means something.
	sorted bool
	// window is the shortest range that a range selector looks back; 0 if there is none.
	window time.Duration
}

// lenient reads more than some engines do: whether a query is good is for the engine to say.
var lenient = parser.NewParser(parser.Options{EnableExperimentalFunctions: true})

// shapeOf reads a query. One that this parser does not know, since the engine has a dialect of its own, has the zero shape.
func shapeOf(query string) shape {
	expr, err := lenient.ParseExpr(query)
	if err != nil {
		return shape{}
	}
	var s shape
	top := expr
	for paren, ok := top.(*parser.ParenExpr); ok; paren, ok = top.(*parser.ParenExpr) {
		top = paren.Expr
	}
	switch e := top.(type) {
	case *parser.AggregateExpr:
		s.sorted = e.Op == parser.TOPK || e.Op == parser.BOTTOMK
	case *parser.Call:
		s.sorted = strings.HasPrefix(e.Func.Name, "sort")
	}
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		window := time.Duration(0)
		switch n := node.(type) {
		case *parser.MatrixSelector:
			window = n.Range
		case *parser.SubqueryExpr:
			window = n.Range
		}
		if window > 0 && (s.window == 0 || window < s.window) {
			s.window = window
		}
		return nil
	})
	return s
}

// maxInnerPoints bounds the points at which one subquery is evaluated: at each the engine may hold a sample of every series, and keeps books of its own
// before it looks at any limit.
const maxInnerPoints = 100_000

// checkReach refuses a query that looks back further than most, or evaluates a subquery at more than [maxInnerPoints] points when it is
// itself evaluated over outer. A subquery without a step is taken to have the least there is. What this parser does not know passes.
func checkReach(query string, outer, most time.Duration) error {
	expr, err := lenient.ParseExpr(query)
	if err != nil {
		return nil //nolint:nilerr // whether a query is good is for the engine to say
	}
	var large error
	parser.Inspect(expr, func(node parser.Node, path []parser.Node) error {
		var back, step time.Duration
		switch n := node.(type) {
		case *parser.MatrixSelector:
			back = n.Range
		case *parser.SubqueryExpr:
			back, step = n.Range, max(n.Step, 0)
			if step == 0 {
				step = minStep
			}
		}
		if back > most {
			large = &TooLargeError{Text: fmt.Sprintf("looks back %s, and at most %s are served", back, most)}
		}
		if step == 0 || large != nil {
			return large
		}
		span := outer + back // below math.MaxInt64: each is at most most, and a query of 4 KiB has few
		for _, above := range path {
			if sub, ok := above.(*parser.SubqueryExpr); ok {
				span += sub.Range
			}
		}
		if points := int64(span / step); points > maxInnerPoints {
			large = &TooLargeError{Text: fmt.Sprintf("evaluates a subquery at %d points, and at most %d are served: use a longer step in [%s:%s]", points, maxInnerPoints, back, step)}
		}
		return large
	})
	return large
}

// queryError turns a parser's error into one with the byte.
func queryError(err error) *QueryError {
	var several parser.ParseErrors
	var one *parser.ParseErr
	switch {
	case errors.As(err, &several) && len(several) > 0:
		one = &several[0]
	case errors.As(err, &one):
	default:
		return &QueryError{Text: err.Error(), Position: -1}
	}
	position := int(one.PositionRange.Start)
	if position < 0 || position > len(one.Query) {
		position = -1
	}
	return &QueryError{Text: one.Err.Error(), Position: position}
}
