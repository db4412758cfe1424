package toolschema

import (
	"slices"
	"strconv"
	"strings"

	"buf.build/gen/go/bufbuild/protovalidate/protocolbuffers/go/buf/validate"
	"google.golang.org/protobuf/reflect/protoreflect"
)

func enumRules(n *node, ed protoreflect.EnumDescriptor, r *validate.EnumRules) (zeroFails bool) {
	if r == nil || n.kind == "null" {
		return false
	}
	allowed := func(e protoreflect.EnumNumber) bool {
		return (r.Const == nil || r.GetConst() == int32(e)) &&
			(len(r.GetIn()) == 0 || slices.Contains(r.GetIn(), int32(e))) &&
			!slices.Contains(r.GetNotIn(), int32(e)) &&
			(!r.GetDefinedOnly() || ed.Values().ByNumber(e) != nil)
	}
	named := r.Const != nil || len(r.GetIn()) > 0 || r.GetDefinedOnly()
	if named || len(r.GetNotIn()) > 0 {
		numbers := r.GetIn()
		if r.Const != nil {
			numbers = []int32{r.GetConst()}
		}
		keepNumbers(n, ed, allowed, named, numbers...)
		if len(r.GetNotIn()) > 0 && len(n.anyOf) > 1 && !named {
			var not []string
			for _, v := range distinct(r.GetNotIn()) {
				not = append(not, strconv.Itoa(int(v)))
			}
			n.anyOf[1].set("not", `{"enum":[`+strings.Join(not, ",")+`]}`)
		}
	}
	return !allowed(0)
}

// keepNumbers keeps the names whose numbers are allowed; named says that no other number is.
func keepNumbers(n *node, ed protoreflect.EnumDescriptor, allowed func(protoreflect.EnumNumber) bool, named bool, more ...int32) {
	var names, others, numbers []string
	seen := map[int32]bool{}
	number := func(e protoreflect.EnumNumber) {
		if !seen[int32(e)] && allowed(e) {
			numbers = append(numbers, strconv.Itoa(int(e)))
		}
		seen[int32(e)] = true
	}
	for i := range ed.Values().Len() {
		v := ed.Values().Get(i)
		number(v.Number())
		if allowed(v.Number()) {
			names = append(names, string(v.Name()))
		} else {
			others = append(others, string(v.Name()))
		}
	}
	for _, v := range more {
		number(protoreflect.EnumNumber(v))
	}
	byName := n
	if len(n.anyOf) > 1 {
		byName = n.anyOf[0]
		if named {
			n.anyOf[1].exact = numbers
		} else if !allowed(0) && !n.anyOf[1].has("not") {
			n.anyOf[1].set("not", `{"enum":[0]}`)
		}
	}
	switch {
	case len(names) == 0:
		n.say("No name is allowed by the contract.")
	case len(names) <= maxEnumNames || len(byName.enum) > 0:
		byName.enum = names
	default:
		n.say(listWords("None of ", others))
	}
}
