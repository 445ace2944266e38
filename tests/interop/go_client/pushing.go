package main

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

// pushing holds push consumers by name; each message that a listener is given becomes an event.
type pushing struct {
	sync.Mutex
	consumers map[string]rocketmq.PushConsumer
	producers *producing
}

func newPushing(producers *producing) *pushing {
	return &pushing{consumers: map[string]rocketmq.PushConsumer{}, producers: producers}
}

func (p *pushing) perform(op string, c command) (any, error) {
	p.Lock()
	chosen, known := p.consumers[c.text("consumer")]
	p.Unlock()
	switch {
	case op == "push.start":
		return p.start(c)
	case !known:
		return nil, fmt.Errorf("no consumer %s", c.text("consumer"))
	case op == "push.queues":
		return queueIds(heldQueues(chosen), c.text("topic")), nil
	case op == "push.progress":
		return progress(chosen, c.text("topic")), nil
	case op == "push.suspend":
		chosen.Suspend()
		return true, nil
	case op == "push.resume":
		chosen.Resume()
		return true, nil
	case op == "push.close":
		p.Lock()
		delete(p.consumers, c.text("consumer"))
		p.Unlock()
		return true, chosen.Shutdown()
	}
	return nil, fmt.Errorf("no such command: %s", op)
}

// heldTable asks what an administrator would be told; the type of that report has no public name.
func heldTable(chosen any) reflect.Value {
	report := reflect.ValueOf(chosen).MethodByName("GetConsumerRunningInfo")
	return report.Call([]reflect.Value{reflect.ValueOf(false)})[0].Elem().FieldByName("MQTable")
}

func heldQueues(chosen any) []primitive.MessageQueue {
	var queues []primitive.MessageQueue
	for _, key := range heldTable(chosen).MapKeys() {
		queues = append(queues, key.Interface().(primitive.MessageQueue))
	}
	return queues
}

// progress is how far each held queue is done, whether the broker was told yet or not.
func progress(chosen any, topic string) map[string]int64 {
	found := map[string]int64{}
	table := heldTable(chosen)
	for _, key := range table.MapKeys() {
		queue := key.Interface().(primitive.MessageQueue)
		if queue.Topic == topic {
			done := table.MapIndex(key).FieldByName("CommitOffset").Int()
			found[fmt.Sprint(queue.QueueId)] = done
		}
	}
	return found
}

func consumerOptions(c command) []consumer.Option {
	model, from := consumer.Clustering, consumer.ConsumeFromFirstOffset
	if c.text("model") == "BROADCASTING" {
		model = consumer.BroadCasting
	}
	switch c.text("start_at") {
	case "CONSUME_FROM_LAST_OFFSET":
		from = consumer.ConsumeFromLastOffset
	case "CONSUME_FROM_TIMESTAMP":
		from = consumer.ConsumeFromTimestamp
	}
	return []consumer.Option{
		consumer.WithGroupName(c.text("group")),
		consumer.WithInstance(c.text("instance")),
		consumer.WithNsResolver(c.resolver()),
		consumer.WithConsumerModel(model),
		consumer.WithConsumeFromWhere(from),
		consumer.WithConsumerOrder(c.flag("orderly")),
		consumer.WithVIPChannel(c.flag("vip")),
		consumer.WithConsumeMessageBatchMaxSize(int(c.number("batch", 1))),
		consumer.WithMaxReconsumeTimes(int32(c.number("retries_max", -1))),
		consumer.WithSuspendCurrentQueueTimeMillis(
			time.Duration(c.number("suspend_ms", 100)) * time.Millisecond),
	}
}

func selector(c command) consumer.MessageSelector {
	if c.has("sql") {
		return consumer.MessageSelector{Type: consumer.SQL92, Expression: c.text("sql")}
	}
	return consumer.MessageSelector{Type: consumer.TAG, Expression: c.textOr("expression", "*")}
}

func (p *pushing) start(c command) (any, error) {
	started, err := rocketmq.NewPushConsumer(consumerOptions(c)...)
	if err != nil {
		return nil, err
	}
	heard := &listening{pushing: p, c: c, attempts: map[string]int64{}}
	for _, topic := range c.fields["topic"] {
		if err := started.Subscribe(topic, selector(c), heard.take); err != nil {
			return nil, err
		}
	}
	if err := started.Start(); err != nil {
		return nil, err
	}
	p.Lock()
	defer p.Unlock()
	p.consumers[c.text("consumer")] = started
	return true, nil
}

// listening accepts everything but texts that start with "fail", those after some attempts.
type listening struct {
	sync.Mutex
	pushing  *pushing
	c        command
	attempts map[string]int64
}

func (l *listening) take(
	ctx context.Context, messages ...*primitive.MessageExt,
) (consumer.ConsumeResult, error) {
	now := time.Now()
	if atOnce, concurrent := primitive.GetConcurrentlyCtx(ctx); concurrent {
		atOnce.DelayLevelWhenNextConsume = int(l.c.number("delay_level", 0))
	}
	accepted := true
	var all []row
	for _, message := range messages {
		if l.c.flag("brief") {
			all = append(all, brief(message))
		} else {
			all = append(all, described(message))
		}
		l.pushing.producers.saw(string(message.Body), now)
		accepted = l.accepts(message) && accepted
	}
	emit(row{"event": "received", "consumer": l.c.text("consumer"), "messages": all})
	if l.c.has("reply_by") {
		return consumer.ConsumeSuccess, l.reply(messages)
	}
	switch {
	case accepted:
		return consumer.ConsumeSuccess, nil
	case l.c.flag("orderly"):
		return consumer.SuspendCurrentQueueAMoment, nil
	}
	return consumer.ConsumeRetryLater, nil
}

func (l *listening) accepts(message *primitive.MessageExt) bool {
	if !strings.HasPrefix(string(message.Body), "fail") {
		return true
	}
	l.Lock()
	defer l.Unlock()
	l.attempts[message.MsgId]++
	return l.attempts[message.MsgId] > l.c.number("failures", 0)
}

// reply answers requests as the library's users do.
func (l *listening) reply(messages []*primitive.MessageExt) error {
	producers := l.pushing.producers
	producers.Lock()
	chosen := producers.producers[l.c.text("reply_by")]
	producers.Unlock()
	for _, message := range messages {
		answer, err := consumer.CreateReplyMessage(message, nil)
		if err != nil {
			return err
		}
		answer.Body = []byte("re: " + string(message.Body))
		if _, err := chosen.SendSync(context.Background(), answer); err != nil {
			return err
		}
	}
	return nil
}
