-- +goose Up

-- Which version of a kind is the newest one: that of the process that started
-- last. Those who submit inside a transaction of their own have no onefold.yaml.
ALTER TABLE onefold.kind_configs ADD COLUMN newest_at timestamptz NOT NULL DEFAULT now();

-- +goose Down
ALTER TABLE onefold.kind_configs DROP COLUMN newest_at;
