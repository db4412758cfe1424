package toolschema

import (
	"buf.build/gen/go/bufbuild/protovalidate/protocolbuffers/go/buf/validate"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// constrain puts the rules of a field into its node, and says whether the field has to be there.
func (b *builder) constrain(f *field, n *node, ignoreZero bool) bool {
	return f.behaves.required || f.fd.Cardinality() == protoreflect.Required || f.rules.GetRequired()
}

func celWords(rules []*validate.Rule, expressions []string) []string {
	var words []string
	for _, r := range rules {
		switch {
		case r.GetMessage() != "":
			words = append(words, "Rule: "+shorten(clean(r.GetMessage()), 200)+".")
		case r.GetExpression() != "":
			words = append(words, "Rule (CEL): "+shorten(visible(r.GetExpression()), 200))
		}
	}
	for _, e := range expressions {
		words = append(words, "Rule (CEL): "+shorten(visible(e), 200))
	}
	return words
}
