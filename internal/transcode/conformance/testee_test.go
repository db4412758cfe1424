package main

import (
	"bytes"
	"encoding/binary"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/dynamicpb"
)

// TestServe sends requests as the runner does.
func TestServe(t *testing.T) {
	tt, err := open("../../../../shared/descriptors/protobuf-conformance.binpb")
	if err != nil {
		t.Fatal(err)
	}
	const proto3, proto2 = "protobuf_test_messages.proto3.TestAllTypesProto3", "protobuf_test_messages.proto2.TestAllTypesProto2"
	for _, c := range []struct{ request, want string }{
		{`{"messageType":"` + proto3 + `","jsonPayload":"{\"optionalInt32\":\"7\"}","requestedOutputFormat":"JSON"}`, `{"jsonPayload":"{\"optionalInt32\":7}"}`},
		{`{"messageType":"` + proto2 + `","protobufPayload":"CAc=","requestedOutputFormat":"JSON"}`, `{"jsonPayload":"{\"optionalInt32\":7}"}`},
		{`{"messageType":"` + proto3 + `","jsonPayload":"{\"optionalInt32\":7}","requestedOutputFormat":"PROTOBUF"}`, `{"protobufPayload":"CAc="}`},
		{`{"messageType":"` + proto3 + `","protobufPayload":"CA==","requestedOutputFormat":"JSON"}`, `{"parseError":"malformed wire bytes of protobuf_test_messages.proto3.TestAllTypesProto3"}`},
		{`{"messageType":"` + proto3 + `","textPayload":"","requestedOutputFormat":"JSON"}`, `{"skipped":"package transcode knows wire bytes and JSON only"}`},
	} {
		req, res := dynamicpb.NewMessage(tt.request), dynamicpb.NewMessage(tt.response)
		if err := protojson.Unmarshal([]byte(c.request), req); err != nil {
			t.Fatal(err)
		}
		b, err := proto.Marshal(req)
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		in := append(binary.LittleEndian.AppendUint32(nil, uint32(len(b))), b...)
		if err := serve(tt, bytes.NewReader(in), &out); err != nil {
			t.Fatal(err)
		}
		if err := proto.Unmarshal(out.Bytes()[4:], res); err != nil {
			t.Fatal(err)
		}
		want := dynamicpb.NewMessage(tt.response)
		if err := protojson.Unmarshal([]byte(c.want), want); err != nil {
			t.Fatal(err)
		}
		if !proto.Equal(res, want) {
			t.Errorf("answer(%s) = %v, want %v", c.request, res, want)
		}
	}
}
