-- +goose Up

-- What a test on purpose signs with and, at a mail server, whom it reaches.
ALTER TABLE onefold.destination_tests
    ADD COLUMN recipient text,
    ADD COLUMN signed text[];

-- Which secrets sign for a destination, since when and how often. Workers add
-- what they signed every few seconds; what one had not yet told when it was
-- killed stands in the deliveries alone.
CREATE TABLE onefold.destination_signers (
    destination text NOT NULL,
    secret      text NOT NULL,
    first_at    timestamptz NOT NULL DEFAULT now(),
    last_at     timestamptz NOT NULL DEFAULT now(),
    deliveries  bigint NOT NULL CHECK (deliveries > 0),
    PRIMARY KEY (destination, secret)
) WITH (fillfactor = 50);

-- +goose Down
DROP TABLE onefold.destination_signers;
ALTER TABLE onefold.destination_tests DROP COLUMN recipient, DROP COLUMN signed;
