package proxy

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	alphapb "google.golang.org/grpc/reflection/grpc_reflection_v1alpha"

	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/catalog"
)

// maxAnswer bounds one answer. Clients take 4 MiB by default; imports that do not fit are asked for by name.
const maxAnswer = 2 << 20

// reflection is grpc.reflection.v1 and v1alpha over the whole catalog.
type reflection struct {
	reflectionpb.UnimplementedServerReflectionServer
	catalog    Snapshots
	visibility call.Visibility

	mu   sync.Mutex
	last *fileSet            // of those who may know of everything
	some map[string]*fileSet // of the others, by what is hidden from them; of the snapshot of seen
	seen *catalog.Snapshot
}

// maxViews bounds the sets of files that are kept for callers who may not know of everything.
const maxViews = 16

// RegisterReflection adds server reflection over the catalog to r, in versions v1 and v1alpha. Only services that a backend owns are
// listed. Two backends may bring one path with different content: then the later one's file has another path, "backend/NAME/" before it.
// The services themselves must be in the catalog, as compiled-in ones, to be called.
//
// visibility says what each caller is told of; nil means everything.
func RegisterReflection(r grpc.ServiceRegistrar, c Snapshots, visibility call.Visibility) {
	s := &reflection{catalog: c, visibility: visibility}
	reflectionpb.RegisterServerReflectionServer(r, s)
	// v1alpha has the same messages under another package name, so the same bytes.
	alpha := alphapb.ServerReflection_ServiceDesc
	alpha.HandlerType = reflectionpb.ServerReflection_ServiceDesc.HandlerType
	alpha.Streams = reflectionpb.ServerReflection_ServiceDesc.Streams
	r.RegisterService(&alpha, s)
}

// files returns the files of the current snapshot that the caller may know of. They are read once for all who may know of the same.
func (s *reflection) files(ctx context.Context) (*fileSet, error) {
	snap := s.catalog.Snapshot()
	var h hidden
	var key string
	if c := call.FromContext(ctx); s.visibility != nil && c != nil {
		h, key = hiddenFrom(snap, func(m *catalog.Method) bool { return s.visibility.Visible(c.Principal, call.GRPC, m) })
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if h != nil {
		return s.view(snap, h, key)
	}
	if s.last != nil && s.last.snap == snap {
		return s.last, nil
	}
	fs, err := newFileSet(snap, nil)
	if err != nil {
		return nil, err
	}
	s.last = fs
	return fs, nil
}

// view returns the files without what is hidden. The lock is held.
func (s *reflection) view(snap *catalog.Snapshot, h hidden, key string) (*fileSet, error) {
	if s.seen != snap || len(s.some) >= maxViews && s.some[key] == nil {
		s.seen, s.some = snap, map[string]*fileSet{}
	}
	if fs := s.some[key]; fs != nil {
		return fs, nil
	}
	fs, err := newFileSet(snap, h)
	if err != nil {
		return nil, err
	}
	s.some[key] = fs
	return fs, nil
}

// ServerReflectionInfo answers each request from the catalog as it is then. Files already sent on the stream are not sent again as imports,
// as long as the catalog stays the same.
func (s *reflection) ServerReflectionInfo(stream grpc.BidiStreamingServer[reflectionpb.ServerReflectionRequest, reflectionpb.ServerReflectionResponse]) error {
	var of *fileSet
	var sent map[string]bool
	for {
		in, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		fs, err := s.files(stream.Context())
		if err != nil {
			return err
		}
		if fs != of {
			of, sent = fs, map[string]bool{}
		}
		out := answer(fs, in, sent)
		out.ValidHost, out.OriginalRequest = in.GetHost(), in
		if err := stream.Send(out); err != nil {
			return err
		}
	}
}

func answer(fs *fileSet, in *reflectionpb.ServerReflectionRequest, sent map[string]bool) *reflectionpb.ServerReflectionResponse {
	switch r := in.GetMessageRequest().(type) {
	case *reflectionpb.ServerReflectionRequest_ListServices:
		list := &reflectionpb.ListServiceResponse{}
		for _, s := range fs.services {
			list.Service = append(list.Service, &reflectionpb.ServiceResponse{Name: s})
		}
		return &reflectionpb.ServerReflectionResponse{MessageResponse: &reflectionpb.ServerReflectionResponse_ListServicesResponse{ListServicesResponse: list}}
	case *reflectionpb.ServerReflectionRequest_FileByFilename:
		return fileAnswer(fs.byPath[r.FileByFilename], "file", r.FileByFilename, sent)
	case *reflectionpb.ServerReflectionRequest_FileContainingSymbol:
		return fileAnswer(fs.bySymbol(r.FileContainingSymbol), "symbol", r.FileContainingSymbol, sent)
	case *reflectionpb.ServerReflectionRequest_FileContainingExtension:
		x := r.FileContainingExtension
		return fileAnswer(fs.byExtension(x.GetContainingType(), x.GetExtensionNumber()), "extension of", x.GetContainingType(), sent)
	case *reflectionpb.ServerReflectionRequest_AllExtensionNumbersOfType:
		numbers, ok := fs.extensionNumbers(r.AllExtensionNumbersOfType)
		if !ok {
			return refusal(codes.NotFound, "unknown type "+r.AllExtensionNumbersOfType)
		}
		return &reflectionpb.ServerReflectionResponse{MessageResponse: &reflectionpb.ServerReflectionResponse_AllExtensionNumbersResponse{
			AllExtensionNumbersResponse: &reflectionpb.ExtensionNumberResponse{BaseTypeName: r.AllExtensionNumbersOfType, ExtensionNumber: numbers},
		}}
	}
	return refusal(codes.InvalidArgument, "the request asks for nothing that is known here")
}

// fileAnswer returns the file and, as far as they fit and have not been sent, all that it imports.
func fileAnswer(f *file, what, name string, sent map[string]bool) *reflectionpb.ServerReflectionResponse {
	if f == nil {
		return refusal(codes.NotFound, "unknown "+what+" "+name)
	}
	out := &reflectionpb.FileDescriptorResponse{FileDescriptorProto: [][]byte{f.wire}}
	sent[f.path] = true
	size := len(f.wire)
	queue := slices.Clone(f.imports)
	for len(queue) > 0 {
		dep := queue[0]
		queue = queue[1:]
		if sent[dep.path] || size+len(dep.wire) > maxAnswer {
			continue
		}
		sent[dep.path] = true
		size += len(dep.wire)
		out.FileDescriptorProto = append(out.FileDescriptorProto, dep.wire)
		queue = append(queue, dep.imports...)
	}
	return &reflectionpb.ServerReflectionResponse{MessageResponse: &reflectionpb.ServerReflectionResponse_FileDescriptorResponse{FileDescriptorResponse: out}}
}

func refusal(code codes.Code, message string) *reflectionpb.ServerReflectionResponse {
	return &reflectionpb.ServerReflectionResponse{MessageResponse: &reflectionpb.ServerReflectionResponse_ErrorResponse{
		ErrorResponse: &reflectionpb.ErrorResponse{ErrorCode: int32(code), ErrorMessage: message},
	}}
}
