package catalog

import (
	"sync"

	"buf.build/gen/go/bufbuild/protovalidate/protocolbuffers/go/buf/validate"
	openapiv2 "github.com/grpc-ecosystem/grpc-gateway/v2/protoc-gen-openapiv2/options"
	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/genproto/googleapis/api/httpbody"
	"google.golang.org/genproto/googleapis/api/visibility"
	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/gofeaturespb"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/apipb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
	"google.golang.org/protobuf/types/known/sourcecontextpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	"google.golang.org/protobuf/types/known/typepb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	toolwayv1 "github.com/toolway/toolway/gen/toolway/v1"
)

// builtin holds the files that a source may leave out: the well-known types and the options that the catalog reads.
var builtin = sync.OnceValue(func() *Files {
	files := new(Files)
	add := func(fd protoreflect.FileDescriptor) {
		if err := files.RegisterFile(fd); err != nil {
			panic("catalog: two built-in files clash: " + err.Error())
		}
	}
	var withImports func(fd protoreflect.FileDescriptor)
	withImports = func(fd protoreflect.FileDescriptor) {
		if _, err := files.FindFileByPath(fd.Path()); err == nil {
			return
		}
		for i := range fd.Imports().Len() {
			withImports(fd.Imports().Get(i).FileDescriptor)
		}
		add(fd)
	}
	for _, fd := range []protoreflect.FileDescriptor{
		descriptorpb.File_google_protobuf_descriptor_proto, anypb.File_google_protobuf_any_proto, apipb.File_google_protobuf_api_proto,
		durationpb.File_google_protobuf_duration_proto, emptypb.File_google_protobuf_empty_proto, fieldmaskpb.File_google_protobuf_field_mask_proto,
		sourcecontextpb.File_google_protobuf_source_context_proto, structpb.File_google_protobuf_struct_proto,
		timestamppb.File_google_protobuf_timestamp_proto, typepb.File_google_protobuf_type_proto, wrapperspb.File_google_protobuf_wrappers_proto,
		gofeaturespb.File_google_protobuf_go_features_proto,
		annotations.File_google_api_annotations_proto, annotations.File_google_api_client_proto, annotations.File_google_api_field_behavior_proto,
		annotations.File_google_api_field_info_proto, annotations.File_google_api_resource_proto, annotations.File_google_api_routing_proto,
		httpbody.File_google_api_httpbody_proto, visibility.File_google_api_visibility_proto,
		code.File_google_rpc_code_proto, errdetails.File_google_rpc_error_details_proto, status.File_google_rpc_status_proto,
		validate.File_buf_validate_validate_proto, openapiv2.File_protoc_gen_openapiv2_options_annotations_proto,
		toolwayv1.File_toolway_v1_options_proto,
	} {
		withImports(fd)
	}
	return files
})

// optionTypes are the extensions that options are parsed with. All others stay unknown fields.
var optionTypes = sync.OnceValue(func() *protoregistry.Types {
	types := new(protoregistry.Types)
	builtin().RangeFiles(func(fd protoreflect.FileDescriptor) bool {
		for i := range fd.Extensions().Len() {
			xt, err := protoregistry.GlobalTypes.FindExtensionByName(fd.Extensions().Get(i).FullName())
			if err == nil {
				err = types.RegisterExtension(xt)
			}
			if err != nil {
				panic("catalog: a built-in option does not register: " + err.Error())
			}
		}
		return true
	})
	return types
})

// wellKnown are the types that ProtoJSON treats by name. Whoever brings one must bring it in its known shape.
var wellKnown = map[string]bool{
	"Any": true, "Timestamp": true, "Duration": true, "Struct": true, "Value": true, "ListValue": true, "FieldMask": true, "Empty": true,
	"DoubleValue": true, "FloatValue": true, "Int64Value": true, "UInt64Value": true, "Int32Value": true, "UInt32Value": true, "BoolValue": true,
	"StringValue": true, "BytesValue": true,
}

// misshapen returns the full name of a well-known type in fdp that is not what its name says, or "".
func misshapen(fdp *descriptorpb.FileDescriptorProto) string {
	if fdp.GetPackage() != "google.protobuf" {
		return ""
	}
	for _, e := range fdp.GetEnumType() {
		if e.GetName() == "NullValue" && (len(e.GetValue()) != 1 || e.GetValue()[0].GetNumber() != 0) {
			return "google.protobuf.NullValue"
		}
	}
	for _, m := range fdp.GetMessageType() {
		name := protoreflect.FullName("google.protobuf." + m.GetName())
		if !wellKnown[m.GetName()] {
			continue
		}
		d, err := builtin().FindDescriptorByName(name)
		if err != nil {
			continue
		}
		fields := d.(protoreflect.MessageDescriptor).Fields()
		if fields.Len() != len(m.GetField()) || fdp.GetSyntax() != "proto3" {
			return string(name)
		}
		for _, f := range m.GetField() {
			fd := fields.ByNumber(protoreflect.FieldNumber(f.GetNumber()))
			if fd == nil || string(fd.Name()) != f.GetName() || protoreflect.Kind(f.GetType()) != fd.Kind() || protoreflect.Cardinality(f.GetLabel()) != fd.Cardinality() {
				return string(name)
			}
		}
	}
	return ""
}
