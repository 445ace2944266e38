package main

import (
	"encoding/base64"
	"errors"
	"fmt"
	"regexp"
	"sort"
	"strconv"

	"github.com/apache/rocketmq-client-go/v2/primitive"
)

const textBytesMax = 64

// The library hands out the broker's refusals as text.
var responseCode = regexp.MustCompile(`(?i)code: ?(\d+)`)

var sendStatuses = map[primitive.SendStatus]string{
	primitive.SendOK:                "SEND_OK",
	primitive.SendFlushDiskTimeout:  "FLUSH_DISK_TIMEOUT",
	primitive.SendFlushSlaveTimeout: "FLUSH_SLAVE_TIMEOUT",
	primitive.SendSlaveNotAvailable: "SLAVE_NOT_AVAILABLE",
}

var pullStatuses = map[primitive.PullStatus]string{
	primitive.PullFound:         "FOUND",
	primitive.PullNoNewMsg:      "NO_NEW_MSG",
	primitive.PullNoMsgMatched:  "NO_MATCHED_MSG",
	primitive.PullOffsetIllegal: "OFFSET_ILLEGAL",
	primitive.PullBrokerTimeout: "BROKER_TIMEOUT",
}

func failure(err error) row {
	described := row{"type": fmt.Sprintf("%T", err), "message": err.Error()}
	if found := responseCode.FindStringSubmatch(err.Error()); found != nil {
		code, _ := strconv.Atoi(found[1])
		described["code"] = code
	}
	if cause := errors.Unwrap(err); cause != nil {
		described["cause"] = failure(cause)
	}
	return described
}

func sent(result *primitive.SendResult) row {
	return row{
		"status":        sendStatuses[result.Status],
		"msg_id":        result.MsgID,
		"offset_msg_id": result.OffsetMsgID,
		"queue_offset":  result.QueueOffset,
		"queue":         result.MessageQueue.QueueId,
		"topic":         result.MessageQueue.Topic,
		"broker":        result.MessageQueue.BrokerName,
		"region":        result.RegionID,
		"trace_on":      result.TraceOn,
	}
}

func brief(message *primitive.MessageExt) row {
	described := row{
		"queue":           message.Queue.QueueId,
		"offset":          message.QueueOffset,
		"reconsume_times": message.ReconsumeTimes,
	}
	if len(message.Body) <= textBytesMax {
		described["text"] = string(message.Body)
	}
	return described
}

func described(message *primitive.MessageExt) row {
	all := brief(message)
	all["topic"] = message.Topic
	all["broker"] = message.Queue.BrokerName
	all["body"] = base64.StdEncoding.EncodeToString(message.Body)
	all["properties"] = message.GetProperties()
	all["tags"] = message.GetTags()
	all["keys"] = message.GetKeys()
	all["flag"] = message.Flag
	all["sys_flag"] = message.SysFlag
	all["body_crc"] = message.BodyCRC
	all["msg_id"] = message.MsgId
	all["offset_msg_id"] = message.OffsetMsgId
	all["born_timestamp"] = message.BornTimestamp
	all["born_host"] = message.BornHost
	all["store_timestamp"] = message.StoreTimestamp
	all["store_host"] = message.StoreHost
	all["store_size"] = message.StoreSize
	all["log_offset"] = message.CommitLogOffset
	return all
}

func describedAll(messages []*primitive.MessageExt) []row {
	all := []row{}
	for _, message := range messages {
		all = append(all, described(message))
	}
	return all
}

func queueIds(queues []primitive.MessageQueue, topic string) []int {
	ids := []int{}
	for _, queue := range queues {
		if queue.Topic == topic {
			ids = append(ids, queue.QueueId)
		}
	}
	sort.Ints(ids)
	return ids
}
