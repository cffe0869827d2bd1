package wire

import "context"

// ScheduleList calls schedule.list: what starts by itself at times.
func (c *Client) ScheduleList(ctx context.Context, req ScheduleListRequest) (ScheduleListResult, error) {
	return call(ctx, c, ScheduleList, req)
}

// ScheduleAdd calls schedule.add: lets something start at times.
func (c *Client) ScheduleAdd(ctx context.Context, req ScheduleAddRequest) (ScheduleResult, error) {
	return call(ctx, c, ScheduleAdd, req)
}

// SchedulePause calls schedule.pause: keeps a schedule from firing.
func (c *Client) SchedulePause(ctx context.Context, req ScheduleRequest) (ScheduleResult, error) {
	return call(ctx, c, SchedulePause, req)
}

// ScheduleResume calls schedule.resume: lets a paused schedule go on, with its first instant from now.
func (c *Client) ScheduleResume(ctx context.Context, req ScheduleRequest) (ScheduleResult, error) {
	return call(ctx, c, ScheduleResume, req)
}

// ScheduleRemove calls schedule.remove: forgets a schedule; its events stay.
func (c *Client) ScheduleRemove(ctx context.Context, req ScheduleRequest) (ScheduleResult, error) {
	return call(ctx, c, ScheduleRemove, req)
}

// ScheduleRun calls schedule.run: fires a schedule now, whatever its state.
func (c *Client) ScheduleRun(ctx context.Context, req ScheduleRequest) (ScheduleRunResult, error) {
	return call(ctx, c, ScheduleRun, req)
}
