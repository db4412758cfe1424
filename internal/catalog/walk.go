package catalog

import (
	"google.golang.org/protobuf/types/descriptorpb"
)

type (
	messageProto   = descriptorpb.DescriptorProto
	fieldProto     = descriptorpb.FieldDescriptorProto
	enumProto      = descriptorpb.EnumDescriptorProto
	extensionProto = descriptorpb.FieldDescriptorProto
)

// eachTop calls yield with every name at the top of a file: messages, enums and their values, services, extensions.
func eachTop(fdp *descriptorpb.FileDescriptorProto, yield func(name string)) {
	pkg := fdp.GetPackage()
	for _, m := range fdp.GetMessageType() {
		yield(join(pkg, m.GetName()))
	}
	for _, e := range fdp.GetEnumType() {
		eachEnumName(pkg, e, yield)
	}
	for _, s := range fdp.GetService() {
		yield(join(pkg, s.GetName()))
	}
	for _, x := range fdp.GetExtension() {
		yield(join(pkg, x.GetName()))
	}
}

func eachEnumName(scope string, e *enumProto, yield func(name string)) {
	yield(join(scope, e.GetName()))
	for _, v := range e.GetValue() {
		yield(join(scope, v.GetName()))
	}
}

// eachMessage calls yield with every message of a file, inner ones before the outer.
func eachMessage(fdp *descriptorpb.FileDescriptorProto, yield func(name string, m *messageProto)) {
	var walk func(scope string, m *messageProto)
	walk = func(scope string, m *messageProto) {
		name := join(scope, m.GetName())
		for _, n := range m.GetNestedType() {
			walk(name, n)
		}
		yield(name, m)
	}
	for _, m := range fdp.GetMessageType() {
		walk(fdp.GetPackage(), m)
	}
}

// eachType calls yield with the full name of every message and enum of a file.
func eachType(fdp *descriptorpb.FileDescriptorProto, yield func(name string)) {
	for _, e := range fdp.GetEnumType() {
		yield(join(fdp.GetPackage(), e.GetName()))
	}
	eachMessage(fdp, func(name string, m *messageProto) {
		yield(name)
		for _, e := range m.GetEnumType() {
			yield(join(name, e.GetName()))
		}
	})
}

// eachRef calls yield with every reference to a type, and the scope in which it stands.
func eachRef(fdp *descriptorpb.FileDescriptorProto, yield func(scope, ref string)) {
	visit := func(scope string, ref string) {
		if ref != "" {
			yield(scope, ref)
		}
	}
	pkg := fdp.GetPackage()
	extensions := func(scope string, xs []*extensionProto) {
		for _, x := range xs {
			visit(scope, x.GetExtendee())
			visit(scope, x.GetTypeName())
		}
	}
	eachMessage(fdp, func(name string, m *messageProto) {
		for _, f := range m.GetField() {
			visit(name, f.GetTypeName())
		}
		extensions(name, m.GetExtension())
	})
	extensions(pkg, fdp.GetExtension())
	for _, s := range fdp.GetService() {
		for _, m := range s.GetMethod() {
			visit(join(pkg, s.GetName()), m.GetInputType())
			visit(join(pkg, s.GetName()), m.GetOutputType())
		}
	}
}

// eachSymbol calls yield with the full name and source path (descriptor.proto, SourceCodeInfo.Location) of all that can have a comment.
func eachSymbol(fdp *descriptorpb.FileDescriptorProto, yield func(name string, path []int32)) {
	at := func(path []int32, more ...int32) []int32 {
		return append(append(make([]int32, 0, len(path)+len(more)), path...), more...)
	}
	enum := func(scope string, path []int32, e *enumProto) {
		yield(join(scope, e.GetName()), path)
		for i, v := range e.GetValue() {
			yield(join(scope, v.GetName()), at(path, 2, int32(i)))
		}
	}
	var message func(scope string, path []int32, m *messageProto)
	message = func(scope string, path []int32, m *messageProto) {
		name := join(scope, m.GetName())
		yield(name, path)
		for i, f := range m.GetField() {
			yield(join(name, f.GetName()), at(path, 2, int32(i)))
		}
		for i, o := range m.GetOneofDecl() {
			yield(join(name, o.GetName()), at(path, 8, int32(i)))
		}
		for i, x := range m.GetExtension() {
			yield(join(name, x.GetName()), at(path, 6, int32(i)))
		}
		for i, e := range m.GetEnumType() {
			enum(name, at(path, 4, int32(i)), e)
		}
		for i, n := range m.GetNestedType() {
			message(name, at(path, 3, int32(i)), n)
		}
	}
	pkg := fdp.GetPackage()
	for i, m := range fdp.GetMessageType() {
		message(pkg, []int32{4, int32(i)}, m)
	}
	for i, e := range fdp.GetEnumType() {
		enum(pkg, []int32{5, int32(i)}, e)
	}
	for i, x := range fdp.GetExtension() {
		yield(join(pkg, x.GetName()), []int32{7, int32(i)})
	}
	for i, s := range fdp.GetService() {
		name := join(pkg, s.GetName())
		yield(name, []int32{6, int32(i)})
		for j, m := range s.GetMethod() {
			yield(join(name, m.GetName()), []int32{6, int32(i), 2, int32(j)})
		}
	}
}
