"""The endpoints, one function each: read the request, open the transaction, call the service, answer."""
