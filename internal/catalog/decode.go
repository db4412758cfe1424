package catalog

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"
)

// maxSetBytes bounds a descriptor set, unpacked.
const maxSetBytes = 256 << 20

// decoded are the files of a descriptor set or buf image.
type decoded struct {
	raws []rawFile
	// cut says where a binary set breaks off; the whole files before it are in raws. Empty means that the set is whole.
	cut string
}

// decode reads a FileDescriptorSet or buf image: binary, JSON or text, each also gzipped. What it is is told by its content.
func decode(data []byte) (decoded, error) {
	data, short, err := unzip(data)
	if err != nil {
		return decoded{}, err
	}
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	if len(data) == 0 {
		return decoded{}, errors.New("it is empty; build it again, for example with: buf build -o set.binpb")
	}
	if !isText(data) {
		d := decodeBinary(data)
		if short && d.cut == "" {
			d.cut = "the gzip stream breaks off"
		}
		if len(d.raws) == 0 {
			return decoded{}, fmt.Errorf("it is no descriptor set: %s; give a FileDescriptorSet or buf image, for example from: buf build -o set.binpb", d.cut)
		}
		return d, nil
	}
	if short {
		return decoded{}, errors.New("its gzip stream breaks off; build it again")
	}
	set := new(descriptorpb.FileDescriptorSet)
	if bytes.HasPrefix(bytes.TrimSpace(data), []byte("{")) {
		if err := (protojson.UnmarshalOptions{DiscardUnknown: true, AllowPartial: true, Resolver: optionTypes()}).Unmarshal(data, set); err != nil {
			return decoded{}, fmt.Errorf("it is no descriptor set in JSON: %s; build it again", plainSpaces(err))
		}
		return split(set)
	}
	if err := (prototext.UnmarshalOptions{DiscardUnknown: true, AllowPartial: true, Resolver: optionTypes()}).Unmarshal(data, set); err != nil {
		if protoSource.Match(data) {
			return decoded{}, errors.New("it is protobuf source, not a descriptor set; compile it first: buf build -o set.binpb, or protoc --include_imports --include_source_info -o set.binpb")
		}
		return decoded{}, fmt.Errorf("it is no descriptor set in text form: %s; build it again", plainSpaces(err))
	}
	return split(set)
}

var protoSource = regexp.MustCompile(`(?m)^\s*(syntax|edition)\s*=\s*["']`)

func plainSpaces(err error) string { return strings.ReplaceAll(err.Error(), "\u00a0", " ") }

// unzip unpacks data if it is gzip. A stream that breaks off gives what came before.
func unzip(data []byte) (out []byte, short bool, err error) {
	if !bytes.HasPrefix(data, []byte{0x1f, 0x8b}) {
		if len(data) > maxSetBytes {
			return nil, false, fmt.Errorf("it is larger than %d MiB; split it", maxSetBytes>>20)
		}
		return data, false, nil
	}
	zr, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, false, fmt.Errorf("its gzip header is damaged: %w; build it again", err)
	}
	out, err = io.ReadAll(io.LimitReader(zr, maxSetBytes+1))
	switch {
	case len(out) > maxSetBytes:
		return nil, false, fmt.Errorf("it unpacks to more than %d MiB; split it", maxSetBytes>>20)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return out, true, nil
	case err != nil:
		return nil, false, fmt.Errorf("its gzip stream is damaged: %w; build it again", err)
	}
	return out, false, nil
}

// isText looks for bytes that text does not have: the tags and lengths of a binary set.
func isText(data []byte) bool {
	head := data[:min(len(data), 1024)]
	for _, c := range head {
		if c < ' ' && c != '\t' && c != '\n' && c != '\r' {
			return false
		}
	}
	for i := 0; len(head) == 1024 && i < utf8.UTFMax && !utf8.Valid(head); i++ {
		head = head[:len(head)-1]
	}
	return utf8.Valid(head)
}

// decodeBinary splits a binary set into its files without parsing them, so that a damaged file costs only itself.
func decodeBinary(data []byte) decoded {
	var d decoded
	for at := 0; at < len(data); {
		num, typ, n := protowire.ConsumeTag(data[at:])
		if n < 0 {
			d.cut = d.broken(at)
			return d
		}
		size := protowire.ConsumeFieldValue(num, typ, data[at+n:])
		if size < 0 {
			d.cut = d.broken(at)
			return d
		}
		if num == 1 && typ == protowire.BytesType {
			body, _ := protowire.ConsumeBytes(data[at+n:])
			d.raws = append(d.raws, rawFile{data: body, at: fmt.Sprintf("file %d at byte %d", len(d.raws)+1, at)})
		}
		at += n + size
	}
	if len(d.raws) == 0 {
		d.cut = "there is no file in it"
	}
	return d
}

func (d *decoded) broken(at int) string {
	s := fmt.Sprintf("it breaks off at byte %d, in file %d", at, len(d.raws)+1)
	if len(d.raws) > 0 {
		if last, err := parseFile(d.raws[len(d.raws)-1].data, optionTypes()); err == nil {
			s += fmt.Sprintf(" (after %q)", last.GetName())
		}
	}
	return s
}

func split(set *descriptorpb.FileDescriptorSet) (decoded, error) {
	var d decoded
	for i, fdp := range set.GetFile() {
		data, err := proto.MarshalOptions{AllowPartial: true}.Marshal(fdp)
		if err != nil {
			return d, fmt.Errorf("file %q in it: %s; build it again", fdp.GetName(), plainSpaces(err))
		}
		d.raws = append(d.raws, rawFile{data: data, at: fmt.Sprintf("file %d", i+1)})
	}
	if len(d.raws) == 0 {
		return d, errors.New("there is no file in it; build it again, for example with: buf build -o set.binpb")
	}
	return d, nil
}
