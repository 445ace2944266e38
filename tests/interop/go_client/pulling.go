package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/admin"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

// pulling holds pull consumers by name: one pull at a time with its status and offsets.
type pulling struct {
	sync.Mutex
	consumers map[string]rocketmq.PullConsumer
}

func newPulling() *pulling { return &pulling{consumers: map[string]rocketmq.PullConsumer{}} }

func (p *pulling) start(c command) (any, error) {
	started, err := rocketmq.NewPullConsumer(consumerOptions(c)...)
	if err != nil {
		return nil, err
	}
	if err := started.Subscribe(c.text("topic"), selector(c)); err != nil {
		return nil, err
	}
	if err := started.Start(); err != nil {
		return nil, err
	}
	p.Lock()
	defer p.Unlock()
	p.consumers[c.text("consumer")] = started
	return true, nil
}

func (p *pulling) chosen(c command) (rocketmq.PullConsumer, error) {
	p.Lock()
	defer p.Unlock()
	found, known := p.consumers[c.text("consumer")]
	if !known {
		return nil, fmt.Errorf("no consumer %s", c.text("consumer"))
	}
	return found, nil
}

func (p *pulling) perform(op string, c command) (any, error) {
	if op == "pull.start" {
		return p.start(c)
	}
	chosen, err := p.chosen(c)
	if err != nil {
		return nil, err
	}
	switch op {
	case "pull.pull":
		result, err := chosen.PullFrom(
			context.Background(), c.queue(), c.number("offset", 0), int(c.number("count", 32)))
		if err != nil {
			return nil, err
		}
		return row{
			"status":   pullStatuses[result.Status],
			"next":     result.NextBeginOffset,
			"min":      result.MinOffset,
			"max":      result.MaxOffset,
			"messages": describedAll(result.GetMessageExts()),
		}, nil
	case "pull.commit":
		if err := chosen.UpdateOffset(c.queue(), c.number("offset", 0)); err != nil {
			return nil, err
		}
		return true, chosen.PersistOffset(context.Background(), c.text("topic"))
	case "pull.committed":
		return chosen.CurrentOffset(c.queue())
	case "pull.close":
		return true, chosen.Shutdown()
	}
	return nil, fmt.Errorf("no such command: %s", op)
}

// polling is the same consumer used as a subscribed member: poll, acknowledge, share the queues.
type polling struct{ *pulling }

func newPolling() polling { return polling{newPulling()} }

func (p polling) perform(op string, c command) (any, error) {
	if op == "lite.start" {
		return p.start(c)
	}
	chosen, err := p.chosen(c)
	if err != nil {
		return nil, err
	}
	switch op {
	case "lite.poll":
		return p.poll(chosen, c)
	case "lite.assigned":
		return queueIds(heldQueues(chosen), c.text("topic")), nil
	case "lite.commit":
		return true, chosen.PersistOffset(context.Background(), c.text("topic"))
	case "lite.close":
		return true, chosen.Shutdown()
	}
	return nil, fmt.Errorf("no such command: %s", op)
}

func (p polling) poll(chosen rocketmq.PullConsumer, c command) (any, error) {
	limit := time.Now().Add(time.Duration(c.number("timeout_ms", 30_000)) * time.Millisecond)
	var got []*primitive.MessageExt
	for len(got) < int(c.number("count", 1)) && time.Now().Before(limit) {
		polled, err := chosen.Poll(context.Background(), time.Until(limit))
		if consumer.IsNoNewMsgError(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		got = append(got, polled.GetMsgList()...)
		chosen.ACK(context.Background(), polled, consumer.ConsumeSuccess)
	}
	return row{"messages": describedAll(got)}, nil
}

// administering is the library's own administration: topics only.
type administering struct{}

func newAdministering() administering { return administering{} }

func (administering) perform(op string, c command) (any, error) {
	used, err := admin.NewAdmin(admin.WithResolver(c.resolver()))
	if err != nil {
		return nil, err
	}
	defer used.Close()
	switch op {
	case "admin.create_topic":
		queues := int(c.number("queues", 4))
		return true, used.CreateTopic(
			context.Background(),
			admin.WithTopicCreate(c.text("topic")),
			admin.WithBrokerAddrCreate(c.text("address")),
			admin.WithReadQueueNums(queues),
			admin.WithWriteQueueNums(queues),
		)
	case "admin.queues":
		found, err := used.FetchPublishMessageQueues(context.Background(), c.text("topic"))
		if err != nil {
			return nil, err
		}
		var queues []primitive.MessageQueue
		for _, queue := range found {
			queues = append(queues, *queue)
		}
		return queueIds(queues, c.text("topic")), nil
	}
	return nil, fmt.Errorf("no such command: %s", op)
}
