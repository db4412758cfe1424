package catalog

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
)

var errNoReflection = errors.New("the server has no reflection")

// reading is what one read brought. It never changes.
type reading struct {
	services []string // sorted, without infrastructure
	files    []rawFile
	findings []Finding
	disputed bool // two lists differed
	hash     string
}

// v1alpha has the same messages on the wire.
var reflectionMethods = []string{
	"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
	"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
}

// maxServices bounds the list of one server.
const maxServices = 2048

// readServer reads all services that the server lists and all files that they need. It opens skip streams more than that takes.
func readServer(ctx context.Context, conn grpc.ClientConnInterface, o ReflectionOptions, skip int) (*reading, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for _, method := range reflectionMethods {
		r := &reader{ctx: ctx, conn: conn, method: method, opts: o, versions: map[string][]*version{}, paths: map[string]bool{}}
		out, err := r.read(skip)
		if status.Code(err) == codes.Unimplemented {
			continue
		}
		return out, err
	}
	return nil, errNoReflection
}

// reader asks one server over one stream at a time.
type reader struct {
	ctx    context.Context
	conn   grpc.ClientConnInterface
	method string
	opts   ReflectionOptions

	stream   grpc.ClientStream
	reopened int
	asked    int
	bytes    int
	order    []string
	paths    map[string]bool       // asked for
	versions map[string][]*version // by path
}

// version is one form of a file; servers behind one address may have several.
type version struct {
	data     []byte
	fdp      *descriptorpb.FileDescriptorProto
	services []string
	listed   bool // its types are known
}

func (r *reader) read(skip int) (*reading, error) {
	for range skip {
		if _, err := r.list(); err != nil {
			return nil, err
		}
		r.hangUp()
	}
	list, err := r.list()
	if err != nil {
		return nil, err
	}
	r.hangUp() // a second stream may reach another server
	other, err := r.list()
	if err != nil {
		return nil, err
	}
	out := &reading{services: list}
	if !slices.Equal(list, other) {
		out.disputed = true
		out.findings = append(out.findings, mismatch(list, other))
		out.services = slices.Compact(slices.Sorted(slices.Values(slices.Concat(list, other))))
	}
	if len(out.services) == 0 {
		out.findings = append(out.findings, Finding{Code: "reflection-empty", Severity: SeverityWarning, Subject: "server reflection", Message: "the server lists no services of its own; register them before reflection"})
	}
	for _, svc := range out.services {
		if err := r.symbol(svc); err != nil {
			if !refused(err) {
				return nil, err
			}
			out.findings = append(out.findings, undescribed(svc, err))
		}
	}
	if err := r.imports(); err != nil {
		return nil, err
	}
	if err := r.types(); err != nil {
		return nil, err
	}
	for _, svc := range out.services {
		if !r.has(svc) && !slices.ContainsFunc(out.findings, func(f Finding) bool { return f.Subject == svc }) {
			out.findings = append(out.findings, undescribed(svc, errors.New("its answer does not define it")))
		}
	}
	out.files = r.files(out.services)
	out.hash = hashReading(out.services, out.files)
	return out, nil
}

func undescribed(svc string, why error) Finding {
	return Finding{
		Code: "service-undescribed", Severity: SeverityError, Subject: svc,
		Message: fmt.Sprintf("service %s is not served: the server lists it and does not describe it: %v; give its descriptors with --descriptors NAME=FILE", svc, why),
	}
}

// list asks for the services, without those that only the mesh itself serves.
func (r *reader) list() ([]string, error) {
	resp, err := r.ask(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}})
	if err != nil {
		return nil, err
	}
	services := resp.GetListServicesResponse().GetService()
	if len(services) > maxServices {
		return nil, fmt.Errorf("the server lists %d services, more than %d", len(services), maxServices)
	}
	out := []string{}
	for _, s := range services {
		if name := s.GetName(); name != "" && !isInfrastructure(name) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// symbol asks for the file of a service. Where servers differ, the next stream may reach one that has it.
func (r *reader) symbol(svc string) error {
	if r.has(svc) {
		return nil
	}
	var err error
	for range 3 {
		if err = r.fetch(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: svc}}); err == nil || !refused(err) {
			return err
		}
		r.hangUp()
	}
	return err
}

// hangUp ends the stream, so that the next question opens another. The stream's context ends with the read.
func (r *reader) hangUp() {
	if r.stream != nil {
		_ = r.stream.CloseSend() // nothing is expected of it any more
	}
	r.stream = nil
}

func (r *reader) has(svc string) bool {
	for _, vs := range r.versions {
		if slices.ContainsFunc(vs, func(v *version) bool { return slices.Contains(v.services, svc) }) {
			return true
		}
	}
	return false
}

// imports asks for the files that are imported and that the server has not sent. What it does not have is for the loader to judge.
func (r *reader) imports() error {
	for i := 0; i < len(r.order); i++ { // r.order grows
		for _, v := range r.versions[r.order[i]] {
			for _, dep := range v.fdp.GetDependency() {
				if r.paths[dep] || r.versions[dep] != nil || strings.HasPrefix(dep, "google/protobuf/") {
					continue
				}
				r.paths[dep] = true
				err := r.fetch(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_FileByFilename{FileByFilename: dep}})
				if err != nil && !refused(err) {
					return err
				}
			}
		}
	}
	return nil
}

// types asks for types that no file defines: the server may have their file under another path than its importers say.
func (r *reader) types() error {
	known, asked := map[string]bool{}, map[string]bool{}
	for i := 0; i < len(r.order); i++ { // r.order grows
		for _, path := range r.order {
			for _, v := range r.versions[path] {
				if !v.listed {
					v.listed = true
					eachType(v.fdp, func(name string) { known[name] = true })
				}
			}
		}
		for _, v := range r.versions[r.order[i]] {
			var wanted []string
			eachRef(v.fdp, func(_, ref string) {
				name, full := strings.CutPrefix(ref, ".")
				if full && !known[name] && !asked[name] && !strings.HasPrefix(name, "google.protobuf.") {
					asked[name] = true
					wanted = append(wanted, name)
				}
			})
			for _, name := range wanted {
				if err := r.fetch(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: name}}); err != nil && !refused(err) {
					return err
				}
			}
			if len(wanted) > 0 {
				if err := r.imports(); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// fetch asks for files and keeps them.
func (r *reader) fetch(req *reflectionpb.ServerReflectionRequest) error {
	resp, err := r.ask(req)
	if err != nil {
		return err
	}
	for _, data := range resp.GetFileDescriptorResponse().GetFileDescriptorProto() {
		fdp, err := parseFile(data, new(protoregistry.Types))
		if err != nil || fdp.GetName() == "" {
			return &refusal{fmt.Sprintf("its answer is no file descriptor: %v", err)}
		}
		if err := r.keep(fdp, data); err != nil {
			return err
		}
	}
	return nil
}

func (r *reader) keep(fdp *descriptorpb.FileDescriptorProto, data []byte) error {
	path := fdp.GetName()
	known := r.versions[path]
	if slices.ContainsFunc(known, func(v *version) bool { return string(v.data) == string(data) }) {
		return nil
	}
	if len(known) == 0 {
		r.order = append(r.order, path)
	}
	if len(r.order) > r.opts.MaxFiles {
		return fmt.Errorf("the server brings more than %d files", r.opts.MaxFiles)
	}
	if len(known) >= 4 {
		return nil
	}
	v := &version{data: data, fdp: fdp}
	for _, s := range fdp.GetService() {
		v.services = append(v.services, join(fdp.GetPackage(), s.GetName()))
	}
	r.versions[path] = append(known, v)
	return nil
}

// files returns one version of each file, sorted by path: the one that defines most of the services.
func (r *reader) files(services []string) []rawFile {
	out := []rawFile{}
	for _, path := range slices.Sorted(slices.Values(r.order)) {
		vs := r.versions[path]
		best, most := vs[0], -1
		for _, v := range vs {
			n := 0
			for _, s := range v.services {
				if slices.Contains(services, s) {
					n++
				}
			}
			if n > most {
				best, most = v, n
			}
		}
		out = append(out, rawFile{data: best.data, at: fmt.Sprintf("file %q from reflection", path)})
	}
	return out
}

// addTo adds the reading's files that are not in files.
func (rd *reading) addTo(files []rawFile) []rawFile {
	files = slices.Clone(files)
	for _, f := range rd.files {
		if !slices.ContainsFunc(files, func(old rawFile) bool { return old.at == f.at }) {
			files = append(files, f)
		}
	}
	return files
}

func hashReading(services []string, files []rawFile) string {
	h := sha256.New()
	for _, s := range services {
		fmt.Fprintf(h, "%q\n", s)
	}
	for _, f := range files {
		fmt.Fprintf(h, "%x\n", sha256.Sum256(f.data))
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// refusal is an answer that says no, on a stream that goes on.
type refusal struct{ why string }

func (e *refusal) Error() string { return e.why }

func refused(err error) bool {
	var no *refusal
	return errors.As(err, &no)
}

// ask sends one request and waits for its answer. A stream that breaks counts as a refusal of that request, a few times.
func (r *reader) ask(req *reflectionpb.ServerReflectionRequest) (*reflectionpb.ServerReflectionResponse, error) {
	const maxReopened = 16
	if r.asked++; r.asked > 2*r.opts.MaxFiles+maxServices {
		return nil, fmt.Errorf("more than %d questions were needed", r.asked-1)
	}
	fresh := r.stream == nil
	resp, err := r.roundTrip(req)
	if err != nil {
		r.stream = nil
		code := status.Code(err)
		if r.ctx.Err() != nil || fresh && r.asked <= 2 || code == codes.Unavailable || code == codes.ResourceExhausted {
			return nil, err
		}
		if r.reopened++; r.reopened > maxReopened {
			return nil, fmt.Errorf("the server broke off %d times: %w", r.reopened, err)
		}
		return nil, &refusal{fmt.Sprintf("the server broke off: %v", err)}
	}
	if e := resp.GetErrorResponse(); e != nil {
		if codes.Code(e.GetErrorCode()) == codes.Unimplemented && r.asked == 1 {
			return nil, status.Error(codes.Unimplemented, e.GetErrorMessage())
		}
		return nil, &refusal{fmt.Sprintf("%v: %s", codes.Code(e.GetErrorCode()), cut(clean(e.GetErrorMessage(), false), 256))}
	}
	return resp, nil
}

func (r *reader) roundTrip(req *reflectionpb.ServerReflectionRequest) (*reflectionpb.ServerReflectionResponse, error) {
	if r.stream == nil {
		desc := &grpc.StreamDesc{StreamName: "ServerReflectionInfo", ClientStreams: true, ServerStreams: true}
		stream, err := r.conn.NewStream(r.ctx, desc, r.method, grpc.MaxCallRecvMsgSize(r.opts.MaxBytes))
		if err != nil {
			return nil, err
		}
		r.stream = stream
	}
	if err := r.stream.SendMsg(req); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	resp := new(reflectionpb.ServerReflectionResponse)
	if err := r.stream.RecvMsg(resp); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, status.Error(codes.Aborted, "the server ended the stream")
		}
		return nil, err
	}
	for _, data := range resp.GetFileDescriptorResponse().GetFileDescriptorProto() {
		if r.bytes += len(data); r.bytes > r.opts.MaxBytes {
			return nil, status.Errorf(codes.ResourceExhausted, "the server brings more than %d bytes of descriptors", r.opts.MaxBytes)
		}
	}
	return resp, nil
}
