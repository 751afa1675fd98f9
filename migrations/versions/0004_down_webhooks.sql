DROP FUNCTION forget_deliveries, open_deliveries, take_deliveries, enqueue_deliveries, describe_event,
    write_body, write_text, write_instant, mint_id;
DROP TABLE webhook_deliveries, webhooks;
