DROP FUNCTION deployment_workers;
