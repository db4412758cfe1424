package mcpadapter

import (
	"bytes"
	"encoding/json"
)

// idWindow is how far from either end of a message that is too long its id is looked for.
const idWindow = 64 << 10

// idTries bounds what is tried of what looks like the id at the end.
const idTries = 16

// longMessage is what is kept of a message that is longer than allowed.
type longMessage struct {
	head, tail []byte
}

// grow notes the next part of the message. Both ends hold idWindow bytes at most, the tail twice as much between two parts.
func (m *longMessage) grow(part []byte) {
	if free := idWindow - len(m.head); free > 0 {
		m.head = append(m.head, part[:min(free, len(part))]...)
	}
	if m.tail = append(m.tail, part...); len(m.tail) > idWindow {
		m.tail = append(m.tail[:0], m.tail[len(m.tail)-idWindow:]...)
	}
}

// id returns the id of the message, or nil if it stands far from both ends: clients commonly write it among the first members or as the last.
func (m *longMessage) id() json.RawMessage {
	if id := headID(m.head); id != nil {
		return id
	}
	return tailID(m.tail)
}

// headID returns the id of the message that begins with data, if it comes before what data cuts.
func headID(data []byte) (id json.RawMessage) {
	s := scanner{data: data}
	s.object(func(name []byte) bool {
		v, ok := s.value()
		if ok && string(name) == "id" && s.space() != 0 { // a number at the end may go on
			id = v
		}
		return ok && id == nil
	})
	if id == nil || !isID(id) {
		return nil
	}
	return id
}

// tailID returns the id of the message that ends with data. It is a member that only the end of one object follows, or other members and
// then that end: inside of params there are two ends at least.
func tailID(data []byte) json.RawMessage {
	const name = `"id"`
	end := len(data)
	for range idTries {
		at := bytes.LastIndex(data[:end], []byte(name))
		if at < 0 {
			return nil
		}
		end = at
		before := bytes.TrimRight(data[:at], " \t\r\n")
		if len(before) == 0 || before[len(before)-1] != ',' && before[len(before)-1] != '{' {
			continue
		}
		// The rest of the object, as an object of its own.
		s := scanner{data: append([]byte{'{'}, data[at:]...)}
		var id json.RawMessage
		whole := s.object(func(name []byte) bool {
			v, ok := s.value()
			if string(name) == "id" && id == nil {
				id = v
			}
			return ok
		})
		if whole && s.end() && isID(id) {
			return id
		}
	}
	return nil
}
