-- One coupon an order. Which state may follow which is held by the trigger,
-- whoever writes; every move is kept.
CREATE TABLE public.coupons (
    order_id text PRIMARY KEY,
    state    text NOT NULL DEFAULT 'pending' CHECK (state IN ('pending', 'issued', 'failed', 'consumed')),
    words    text
);
CREATE TABLE public.coupon_moves (
    order_id text NOT NULL REFERENCES public.coupons,
    was      text,
    became   text NOT NULL,
    at       timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE FUNCTION public.coupon_move() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' AND (OLD.state, NEW.state) NOT IN (('pending', 'issued'), ('pending', 'failed'), ('issued', 'consumed')) THEN
        RAISE EXCEPTION 'a coupon that is % cannot become %', OLD.state, NEW.state;
    END IF;
    INSERT INTO public.coupon_moves (order_id, was, became) VALUES (NEW.order_id, CASE TG_OP WHEN 'UPDATE' THEN OLD.state END, NEW.state);
    RETURN NULL;
END $$;
CREATE TRIGGER coupon_move AFTER INSERT OR UPDATE ON public.coupons FOR EACH ROW EXECUTE FUNCTION public.coupon_move();
