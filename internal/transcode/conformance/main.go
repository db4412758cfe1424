// Command conformance is the testee of the official protobuf conformance suite: a program that the suite's runner starts, and that turns
// each test message from one format into another with package transcode. See run.sh.
package main

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "conformance:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 1 {
		return errors.New("usage: conformance DESCRIPTOR_SET, which the runner of the suite starts")
	}
	t, err := open(args[0])
	if err != nil {
		return err
	}
	return serve(t, bufio.NewReader(os.Stdin), os.Stdout)
}

// serve answers requests until the input ends. Both directions put a length of 32 bits before each message.
func serve(t *testee, in io.Reader, out io.Writer) error {
	var size [4]byte
	for {
		if _, err := io.ReadFull(in, size[:]); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("read the length of a request: %w", err)
		}
		request := make([]byte, binary.LittleEndian.Uint32(size[:]))
		if _, err := io.ReadFull(in, request); err != nil {
			return fmt.Errorf("read a request: %w", err)
		}
		response, err := t.answer(request)
		if err != nil {
			return err
		}
		binary.LittleEndian.PutUint32(size[:], uint32(len(response)))
		if _, err := out.Write(append(size[:], response...)); err != nil {
			return fmt.Errorf("write a response: %w", err)
		}
	}
}
