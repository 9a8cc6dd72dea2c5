-- What the queries read: all events except those of tasks, and everything that is not an event.
create table rare_event (
    event_id varchar, event_type varchar, event_ns bigint, node_id varchar, severity varchar, message varchar, body json
);
create table document (source varchar, name varchar, node_id varchar, body json);
