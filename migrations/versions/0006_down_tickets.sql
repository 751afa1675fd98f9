DROP FUNCTION admit_holder, find_holder;
