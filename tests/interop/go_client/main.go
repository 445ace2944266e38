// Drives real RocketMQ clients: a command per line on standard input, JSON lines on standard
// output, as the Java driver beside this one.
//
// A command is a form-encoded line with "id" and "op"; its answer has the same "id" and "done" or
// "error". Commands run side by side, so answers come in any order. What push consumers receive
// comes in between as lines with "event". Ends with its standard input.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"

	"github.com/apache/rocketmq-client-go/v2/rlog"
)

const lineBytesMax = 64 << 20

type row = map[string]any

var output = struct {
	sync.Mutex
	lines *json.Encoder
}{lines: json.NewEncoder(os.Stdout)}

func emit(line row) {
	output.Lock()
	defer output.Unlock()
	if err := output.lines.Encode(line); err != nil {
		os.Exit(1)
	}
}

type room interface {
	perform(op string, c command) (any, error)
}

func main() {
	// Warnings of the library go to standard error, which the caller shows when this process ends.
	rlog.SetLogLevel("warn")
	producers := newProducing()
	rooms := map[string]room{
		"producer":    producers,
		"transaction": newTransacting(),
		"push":        newPushing(producers),
		"pull":        newPulling(),
		"lite":        newPolling(),
		"admin":       newAdministering(),
	}
	emit(row{"event": "ready", "pid": os.Getpid()})
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(make([]byte, 0, 1<<16), lineBytesMax)
	for lines.Scan() {
		c, err := parseCommand(lines.Text())
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		go answer(rooms, c)
	}
}

func answer(rooms map[string]room, c command) {
	op := c.text("op")
	name, _, _ := strings.Cut(op, ".")
	// A command that panics is answered: the library itself panics on some input.
	defer func() {
		if cause := recover(); cause != nil {
			emit(row{"id": c.number("id", 0), "error": failure(fmt.Errorf("panic: %v", cause))})
		}
	}()
	chosen, known := rooms[name]
	if !known {
		emit(row{"id": c.number("id", 0), "error": failure(fmt.Errorf("no such command: %s", op))})
		return
	}
	done, err := chosen.perform(op, c)
	if err != nil {
		emit(row{"id": c.number("id", 0), "error": failure(err)})
		return
	}
	emit(row{"id": c.number("id", 0), "done": done})
}
