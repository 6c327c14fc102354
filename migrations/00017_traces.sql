-- +goose Up

-- Where in a trace a row was made, as a W3C traceparent: what its attempts and deliveries
-- continue from. Null where the caller sent none and no spans are made.
ALTER TABLE onefold.tasks ADD COLUMN traceparent text;
ALTER TABLE onefold.batches ADD COLUMN traceparent text;
ALTER TABLE onefold.effects ADD COLUMN traceparent text;

-- +goose Down
ALTER TABLE onefold.effects DROP COLUMN traceparent;
ALTER TABLE onefold.batches DROP COLUMN traceparent;
ALTER TABLE onefold.tasks DROP COLUMN traceparent;
