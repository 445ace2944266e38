package main

import (
	"context"
	"fmt"
	"strings"
	"sync"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

// transacting holds transaction producers by name. The words of a body are its answers: the first
// is that of the local transaction, the next ones those of the checks.
type transacting struct {
	sync.Mutex
	producers map[string]rocketmq.TransactionProducer
}

func newTransacting() *transacting {
	return &transacting{producers: map[string]rocketmq.TransactionProducer{}}
}

type deciding struct {
	sync.Mutex
	name   string
	checks map[string]int
}

func state(body string, number int) primitive.LocalTransactionState {
	words := strings.Split(body, "-")
	if number < len(words) {
		switch words[number] {
		case "commit":
			return primitive.CommitMessageState
		case "rollback":
			return primitive.RollbackMessageState
		}
	}
	return primitive.UnknowState
}

func (d *deciding) ExecuteLocalTransaction(message *primitive.Message) primitive.LocalTransactionState {
	return state(string(message.Body), 0)
}

func (d *deciding) CheckLocalTransaction(message *primitive.MessageExt) primitive.LocalTransactionState {
	d.Lock()
	defer d.Unlock()
	text := string(message.Body)
	d.checks[text]++
	emit(row{"event": "received", "consumer": d.name, "messages": []row{described(message)}})
	return state(text, d.checks[text])
}

func (t *transacting) perform(op string, c command) (any, error) {
	t.Lock()
	chosen, known := t.producers[c.text("producer")]
	t.Unlock()
	switch {
	case op == "transaction.start":
		return t.start(c)
	case !known:
		return nil, fmt.Errorf("no producer %s", c.text("producer"))
	case op == "transaction.send":
		messages, err := c.messages()
		if err != nil {
			return nil, err
		}
		result, err := chosen.SendMessageInTransaction(context.Background(), messages[0])
		if err != nil {
			return nil, err
		}
		return sent(result.SendResult), nil
	case op == "transaction.close":
		return true, chosen.Shutdown()
	}
	return nil, fmt.Errorf("no such command: %s", op)
}

func (t *transacting) start(c command) (any, error) {
	listener := &deciding{name: c.text("producer"), checks: map[string]int{}}
	started, err := rocketmq.NewTransactionProducer(listener, options(c)...)
	if err != nil {
		return nil, err
	}
	if err := started.Start(); err != nil {
		return nil, err
	}
	t.Lock()
	defer t.Unlock()
	t.producers[c.text("producer")] = started
	return true, nil
}
