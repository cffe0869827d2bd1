package job

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/label"
	"github.com/ombud-run/ombud/internal/vault"
)

const columns = "id, token, subject, run, fence, conversation, body, calls, created, expires, ended"

func (j *Jobs) scan(scan func(...any) error) (job Job, digest []byte, err error) {
	var sealed []byte
	err = scan(&job.ID, &digest, &job.Subject, &job.Run, &job.fence, &job.Conversation, &sealed, &job.Made, &job.Created, &job.Expires, &job.Ended)
	if err != nil {
		return job, nil, err
	}
	plain, err := j.Vault.Open(vault.JobBody, job.ID, sealed)
	if err == nil {
		err = json.Unmarshal(plain, &job.body)
	}
	return job, digest, err
}

func (j *Jobs) load(ctx context.Context, q db.Q, jobID string) (Job, []byte, error) {
	job, digest, err := j.scan(q.QueryRow(ctx, "SELECT "+columns+" FROM jobs WHERE id = $1", jobID).Scan)
	if errors.Is(err, sql.ErrNoRows) {
		return job, nil, fault.New(fault.NotFound, "no job %s", jobID)
	}
	return job, digest, err
}

// shownTx marks a job with the label of a result it is shown.
func (j *Jobs) shownTx(ctx context.Context, tx *db.Tx, jobID string, l label.Label) error {
	job, _, err := j.load(ctx, tx, jobID)
	if err != nil {
		return err
	}
	job.body.Label = label.Join(job.body.Label, l)
	raw, err := json.Marshal(job.body)
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, "UPDATE jobs SET body = $1 WHERE id = $2", j.Vault.Seal(vault.JobBody, jobID, raw), jobID)
	return err
}
