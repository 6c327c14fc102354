-- +goose Up

-- Which secret of a source verified how many deliveries in an hour: when all
-- senders have the new one, the old one can go.
CREATE TABLE onefold.source_secrets (
    source  text NOT NULL,
    secret  text NOT NULL,
    hour    timestamptz NOT NULL,
    count   bigint NOT NULL CHECK (count > 0),
    last_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (source, secret, hour)
) WITH (fillfactor = 50);

-- +goose Down
DROP TABLE onefold.source_secrets;
